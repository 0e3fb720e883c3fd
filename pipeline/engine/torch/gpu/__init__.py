"""The operations of a Llama layer on an NVIDIA GPU: own kernels for a step, torch for a prefill.

A prefill's rows fill the tensor cores, and there cuBLAS and torch's attention are at home.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.engine.torch.gpu import rowwise
from pipeline.engine.torch.gpu.attention import attend
from pipeline.engine.torch.gpu.product import MAX_ROWS, skinny_product, takes
from pipeline.engine.torch.kernels import Kernels, Rows


class GpuKernels(Kernels):
    """Triton's and CUDA's kernels for up to `MAX_ROWS` rows; shapes are those of `Kernels`."""

    name = "skinny product (up to 16 rows, else cuBLAS)"
    attention = "triton split-KV"

    def step_rows(
        self,
        tokens: Tensor,
        mask: Tensor,
        start: Tensor,
        num_slots: int,
        rotary: tuple[Tensor, Tensor],
        dtype: torch.dtype,
    ) -> Rows:
        """Put a step into the form that layers use; no bias over slots is written out, [W, 0]."""
        if len(tokens) > MAX_ROWS:
            return super().step_rows(tokens, mask, start, num_slots, rotary, dtype)
        slots = start + torch.arange(len(tokens), device=tokens.device)
        bias = rotary[0].new_empty((len(tokens), 0))
        return Rows(tokens, start, slots, *rotary, mask.view(torch.uint8), bias)

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return x, [W, in], times the transpose of `weight`, [out, in]."""
        return skinny_product(x, weight) if _few(x, weight) else super().linear(x, weight)

    def gated(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return silu(gate) * up, [W, I], for gates and ups in one `weight`, [2 * I, in]."""
        return (
            skinny_product(x, weight, gated=True) if _few(x, weight) else super().gated(x, weight)
        )

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return [W, V] float32; a step's is never rounded to the weights' type."""
        if _few(x, weight):
            return skinny_product(x, weight, torch.float32)
        return super().logits(x, weight)

    def attend(
        self, qkv: Tensor, rows: Rows, keys: Tensor, values: Tensor, num_heads: int
    ) -> Tensor:
        """Turn queries and keys, store keys and values, and attend; return [W, N * D]."""
        if len(qkv) > MAX_ROWS:
            return super().attend(qkv, rows, keys, values, num_heads)
        return attend(qkv, rows, keys, values, num_heads)

    rms_norm = staticmethod(rowwise.rms_norm)
    add_rms_norm = staticmethod(rowwise.add_rms_norm)
    best_and_margin = staticmethod(rowwise.best_and_margin)


def _few(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels for few rows take this product."""
    return len(x) <= MAX_ROWS and takes(weight)
