"""The seam between the forward and what computes it: plain torch, or our own on an NVIDIA GPU."""

from __future__ import annotations

import importlib.util
from typing import Protocol, cast

import torch
from torch import Tensor

from pipeline.engine.torch import ops
from pipeline.engine.torch.ops import Rows

# W rows of the step, H hidden, I intermediate, N query heads, K key-value heads, D head width


class Kernels(Protocol):
    """The operations of a Llama layer; the module `ops` is the reference for all of them.

    Attributes:
        NAME: Whose products run, for the proof.
        ATTENTION: Which attention runs, for the proof.
    """

    NAME: str
    ATTENTION: str

    def step_rows(
        self,
        tokens: Tensor,
        mask: Tensor,
        start: Tensor,
        num_slots: int,
        rotary: tuple[Tensor, Tensor],
        dtype: torch.dtype,
    ) -> Rows:
        """Put a step into the form that layers use; `rotary` holds cos and sin of the rows."""

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return x, [W, in], times the transpose of `weight`, [out, in]."""

    def gated(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return silu(gate) * up, [W, I], for gates and ups in one `weight`, [2 * I, in]."""

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the head's product, [W, V] float32."""

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return x, [W, H], scaled to unit root mean square and by `weight`."""

    def add_rms_norm(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + delta`, and that sum."""

    def attend(
        self, qkv: Tensor, rows: Rows, keys: Tensor, values: Tensor, num_heads: int
    ) -> Tensor:
        """Turn queries and keys, store keys and values, and attend.

        Args:
            qkv: [W, (N + 2 * K) * D], the heads of queries, keys and values; N is `num_heads`.
            rows: The step's rows.
            keys: [K, S, D], a layer's cache; written at the rows' slots.
            values: [K, S, D].
            num_heads: Query heads.

        Returns:
            [W, N * D].
        """

    def best_and_margin(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return each row's argmax and how far it leads the second best."""


# Overlapping launches and bulk prefetches: Hopper and later.
_LEAST_CAPABILITY = (9, 0)


def kernels_for(device: torch.device, dtype: torch.dtype) -> Kernels:
    """Return the fastest kernels for tensors of this device and type."""
    if device.type == "cuda" and dtype == torch.bfloat16 and _can_compile_for(device):
        from pipeline.engine.torch import gpu

        return cast(Kernels, gpu)
    return cast(Kernels, ops)


def _can_compile_for(device: torch.device) -> bool:
    """Whether our kernels run on a GPU: Triton and CUDA's bindings come with torch for NVIDIA."""
    installed = all(importlib.util.find_spec(name) for name in ("triton", "cuda"))
    return installed and torch.cuda.get_device_capability(device) >= _LEAST_CAPABILITY
