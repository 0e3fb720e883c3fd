"""The operations of a Llama layer: plain torch, the reference, or our own on an NVIDIA GPU."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# W rows of the step, H hidden, I intermediate, N query heads, K key-value heads, D head width,
# S slots looked at


class Rows(NamedTuple):
    """A step's rows on the model's device, in the form that layers use.

    Attributes:
        tokens: [W] int64.
        start: [] int64, slots in use before the step.
        slots: [W] int64, where keys and values go: `start` and the following.
        cos: [W, D] rotary table at the rows' positions, half repeated.
        sin: [W, D].
        mask: [W, W]; row may attend row.
        bias: [W, S] float: 0 where a row attends a slot, -inf where not. [W, 0] for kernels that
            read `mask` and `start` instead.
    """

    tokens: Tensor
    start: Tensor
    slots: Tensor
    cos: Tensor
    sin: Tensor
    mask: Tensor
    bias: Tensor


def rotary_table(num_positions: int, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cos and sin, [P, D] float32 each, for rotate-half embedding.

    Source: Su et al. 2021, https://arxiv.org/abs/2104.09864
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float64), theta**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().float(), angles.sin().float()


def attention_bias(mask: Tensor, start: Tensor, num_slots: int, dtype: torch.dtype) -> Tensor:
    """Return the additive mask over `num_slots` slots, [W, S].

    Args:
        mask: [W, W] bool: row may attend row.
        start: [] int64: slots before it are attended by every row.
        num_slots: S; may exceed start + W, the rest is masked.
        dtype: Of the result.
    """
    width = mask.shape[0]
    offset = torch.arange(num_slots, device=mask.device) - start
    inside = (offset >= 0) & (offset < width)
    allowed = mask[:, offset.clamp(0, width - 1)] & inside | (offset < 0)
    return torch.where(allowed, 0.0, float("-inf")).to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the heads of x, [W, heads, D], turned to their rows' positions."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos.unsqueeze(1).to(x.dtype) + turned * sin.unsqueeze(1).to(x.dtype)


def silu_and_multiply(gate_up: Tensor) -> Tensor:
    """Return silu(gate) * up, [W, I], of both in one tensor, [W, 2 * I], gate first."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up


class Kernels:
    """The operations in plain torch; what is faster somewhere overrides them.

    Attributes:
        name: Whose products run, for the proof.
        attention: Which attention runs, for the proof.
    """

    name = "torch"
    attention = "torch scaled_dot_product_attention"

    def step_rows(
        self,
        tokens: Tensor,
        mask: Tensor,
        start: Tensor,
        num_slots: int,
        rotary: tuple[Tensor, Tensor],
        dtype: torch.dtype,
    ) -> Rows:
        """Put a step into the form that layers use.

        Args:
            tokens: [W] int64.
            mask: [W, W] bool: row may attend row.
            start: [] int64.
            num_slots: Slots to look at; may exceed start + W, the rest is masked.
            rotary: cos and sin at the rows' positions, [W, D] float32 each.
            dtype: Of keys and values.
        """
        slots = start + torch.arange(tokens.shape[0], device=tokens.device)
        bias = attention_bias(mask, start, num_slots, dtype)
        return Rows(tokens, start, slots, *rotary, mask, bias)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return x, [W, in], times the transpose of `weight`, [out, in]."""
        return functional.linear(x, weight)

    def gated(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return silu(gate) * up, [W, I], for gates and ups in one `weight`, [2 * I, in]."""
        return silu_and_multiply(self.linear(x, weight))

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the head's product, [W, V] float32, of x, [W, H], and `weight`, [V, H]."""
        return functional.linear(x, weight).float()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return x, [W, H], scaled to unit root mean square (in float32) and by `weight`, [H]."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight

    def add_rms_norm(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + delta`, [W, H], and that sum: the end of a block."""
        total = residual + delta
        return self.rms_norm(total, weight, eps), total

    def attend(
        self, qkv: Tensor, rows: Rows, keys: Tensor, values: Tensor, num_heads: int
    ) -> Tensor:
        """Turn queries and keys, store keys and values, and attend; return [W, N * D].

        Args:
            qkv: [W, (N + 2 * K) * D], the heads of queries, keys and values; N is `num_heads`.
            rows: The step's rows; their slots are written, and those that `bias` covers attended.
            keys: [K, S, D], a layer's cache.
            values: [K, S, D].
            num_heads: Query heads.
        """
        num_kv_heads, _, head_dim = keys.shape
        heads = qkv.view(qkv.shape[0], -1, head_dim)
        turned = rotate(heads[:, : num_heads + num_kv_heads], rows.cos, rows.sin)
        keys.index_copy_(1, rows.slots, turned[:, num_heads:].transpose(0, 1))
        values.index_copy_(1, rows.slots, heads[:, num_heads + num_kv_heads :].transpose(0, 1))
        num_slots = rows.bias.shape[1]
        out = functional.scaled_dot_product_attention(
            turned[:, :num_heads].transpose(0, 1)[None],
            keys[None, :, :num_slots],
            values[None, :, :num_slots],
            attn_mask=rows.bias,
            enable_gqa=True,
        )
        return out[0].transpose(0, 1).reshape(qkv.shape[0], -1)

    def best_and_margin(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return each row's argmax, [W] int64, and its lead over the second best, [W] float32.

        Two maxima are several times faster than `topk(2)` on a CPU; the logits, [W, V] float32, are
        left as they were.
        """
        best_logit, best = logits.max(dim=-1)
        place = best.unsqueeze(-1)
        second = logits.scatter_(-1, place, float("-inf")).amax(dim=-1)
        logits.scatter_(-1, place, best_logit.unsqueeze(-1))
        return best, best_logit - second
