"""The mathematics of an EAGLE-3 head, for drafting and for training alike.

Row i of a head holds the target's hidden states after token i and the embedding of token i + 1;
it scores token i + 2. Where the target's states are not known yet, the head goes on from its own
output of the row before.

Source: Li et al. 2025, EAGLE-3, https://arxiv.org/abs/2503.01840
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from drafters.eagle3.shape import HeadShape

# H hidden, N query heads, K key-value heads, E head width, D draft vocabulary; … any leading sizes

Weights = Mapping[str, Tensor]  # by the names of `drafters.eagle3.shape.tensor_shapes`


def fuse(weights: Weights, features: Tensor) -> Tensor:
    """Return the head's state, […, H], of the target's hidden states, […, 3 * H]."""
    return functional.linear(features, weights["fc.weight"])


def project(
    weights: Weights,
    shape: HeadShape,
    embeds: Tensor,
    hidden: Tensor,
    rotary: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, […, N, E], keys and values, […, K, E], turned to their positions.

    Args:
        weights: The head's tensors.
        shape: Its shape.
        embeds: […, H], the target's embedding of each row's token.
        hidden: […, H], each row's state.
        rotary: cos and sin at each row's position, […, E] each.
    """
    eps = shape.rms_norm_eps
    x = torch.cat(
        (
            rms_norm(embeds, weights["midlayer.input_layernorm.weight"], eps),
            rms_norm(hidden, weights["midlayer.hidden_norm.weight"], eps),
        ),
        dim=-1,
    )
    query, key, value = (
        functional.linear(x, weights[f"midlayer.self_attn.{name}_proj.weight"]).view(
            *x.shape[:-1], -1, shape.head_dim
        )
        for name in "qkv"
    )
    return rotate(query, rotary), rotate(key, rotary), value


def finish(weights: Weights, shape: HeadShape, attended: Tensor, hidden: Tensor) -> Tensor:
    """Return the rows' output state, […, H], before the last norm.

    Args:
        weights: The head's tensors.
        shape: Its shape.
        attended: […, N * E], what the heads attended.
        hidden: […, H], the rows' input state.
    """
    hidden = hidden + functional.linear(attended, weights["midlayer.self_attn.o_proj.weight"])
    x = rms_norm(hidden, weights["midlayer.post_attention_layernorm.weight"], shape.rms_norm_eps)
    gate = functional.silu(functional.linear(x, weights["midlayer.mlp.gate_proj.weight"]))
    up = functional.linear(x, weights["midlayer.mlp.up_proj.weight"])
    return hidden + functional.linear(gate * up, weights["midlayer.mlp.down_proj.weight"])


def score(weights: Weights, shape: HeadShape, hidden: Tensor) -> Tensor:
    """Return the slots' logits, […, D], of output states, […, H]."""
    x = rms_norm(hidden, weights["norm.weight"], shape.rms_norm_eps)
    return functional.linear(x, weights["lm_head.weight"])


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x, […, H], scaled to unit root mean square (in float32) and by `weight`, [H]."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotary_table(num_positions: int, shape: HeadShape) -> tuple[Tensor, Tensor]:
    """Return cos and sin, [P, E] float32 each, for rotate-half embedding."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    positions = torch.arange(num_positions, dtype=torch.float64)
    angles = torch.outer(positions, shape.rope_theta**-exponents).repeat(1, 2)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Turn heads, […, heads, E], to their rows' positions."""
    cos, sin = (part.unsqueeze(-2).to(x.dtype) for part in rotary)
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin
