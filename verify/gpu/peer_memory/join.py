"""The end of a block over peer memory, fused or as an all-reduce with a norm behind it."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from verify.gpu.peer_memory.allreduce import PeerAllReduce

AddNorm = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


class FusedJoin:
    """Sum, residual add and norm in one kernel. There is no other way through this class."""

    allreduce = "fused"

    def __init__(self, peers: PeerAllReduce) -> None:
        """Bind the peers' memory."""
        self._peers = peers
        self.num_allreduces = self.num_fused = 0

    def __call__(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + sum of the ranks' deltas`, and that sum."""
        self.num_allreduces += 1
        self.num_fused += 1
        return self._peers.fused(delta, residual, weight, eps)


class UnfusedJoin:
    """The same one-shot sum as a kernel of its own: tells fusing from not being the library's."""

    allreduce = "custom"

    def __init__(self, peers: PeerAllReduce, add_rms_norm: AddNorm) -> None:
        """Bind the peers' memory and the model's own add and norm."""
        self._peers, self._add_rms_norm = peers, add_rms_norm
        self.num_allreduces = self.num_fused = 0

    def __call__(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + sum of the ranks' deltas`, and that sum."""
        self.num_allreduces += 1
        return self._add_rms_norm(self._peers.one_shot(delta), residual, weight, eps)
