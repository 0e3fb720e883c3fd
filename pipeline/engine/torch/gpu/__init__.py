"""The operations of a Llama layer on an NVIDIA GPU: own kernels for a step, torch for a prefill.

A prefill's rows fill the tensor cores, and there cuBLAS and torch's attention are at home.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.engine.torch import ops
from pipeline.engine.torch.gpu import attention, rowwise
from pipeline.engine.torch.gpu.product import MAX_ROWS, skinny_gated, skinny_linear, takes
from pipeline.engine.torch.ops import Rows

NAME = "skinny product (up to 16 rows, else cuBLAS)"
ATTENTION = "triton split-KV"


def step_rows(
    tokens: Tensor,
    mask: Tensor,
    start: Tensor,
    num_slots: int,
    rotary: tuple[Tensor, Tensor],
    dtype: torch.dtype,
) -> Rows:
    """Put a step into the form that layers use; no bias over slots is written out.

    Args:
        tokens: [W] int64.
        mask: [W, W] bool: row may attend row.
        start: [] int64, slots in use before the step.
        num_slots: Slots to look at.
        rotary: cos and sin at the rows' positions, [W, D] float32 each.
        dtype: Of keys and values.
    """
    if len(tokens) > MAX_ROWS:
        return ops.step_rows(tokens, mask, start, num_slots, rotary, dtype)
    slots = start + torch.arange(len(tokens), device=tokens.device)
    bias = rotary[0].new_empty((len(tokens), 0))
    return Rows(tokens, start, slots, *rotary, mask.view(torch.uint8), bias)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return x, [W, in], times the transpose of `weight`, [out, in]."""
    if len(x) > MAX_ROWS or not takes(weight):
        return ops.linear(x, weight)
    return skinny_linear(x, weight)


def gated(x: Tensor, weight: Tensor) -> Tensor:
    """Return silu(gate) * up, [W, I], for gates and ups in one `weight`, [2 * I, in]."""
    if len(x) > MAX_ROWS or not takes(weight):
        return ops.gated(x, weight)
    return skinny_gated(x, weight)


def logits(x: Tensor, weight: Tensor) -> Tensor:
    """Return the head's product, [W, V] float32; a step's is never rounded to the weights' type."""
    if len(x) > MAX_ROWS or not takes(weight):
        return ops.logits(x, weight)
    return skinny_linear(x, weight, torch.float32)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x, [W, H], scaled to unit root mean square and by `weight`."""
    return rowwise.rms_norm(x, weight, eps)


def add_rms_norm(
    delta: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return the norm of `residual + delta` by `weight`, [H], and that sum, both [W, H]."""
    return rowwise.add_rms_norm(delta, residual, weight, eps)


def attend(qkv: Tensor, rows: Rows, keys: Tensor, values: Tensor, num_heads: int) -> Tensor:
    """Turn queries and keys, store keys and values, and attend; [W, N * D]."""
    if len(qkv) > MAX_ROWS:
        return ops.attend(qkv, rows, keys, values, num_heads)
    return attention.attend(qkv, rows, keys, values, num_heads)


def best_and_margin(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's argmax, [W] int64, and its lead over the second best, [W] float32."""
    return rowwise.best_and_margin(logits)
