"""The ways to end a block that the GPU benchmarks compare, as backends that any rank can build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch.distributed as dist
from torch import Tensor

from pipeline.engine.torch.kernels import Kernels
from pipeline.engine.torch.llama import Llama, LocalJoin
from pipeline.engine.torch.parallel.rank import SeparateJoin, VocabularyParallelHead
from verify.base import BuildsStep, Join, Proof, TargetModel, VerifyStep
from verify.extend import Extend
from verify.fused_allreduce import FusedAllreduce
from verify.gpu.cuda_graph import CudaGraphStep
from verify.graph_captured import GraphCaptured

if TYPE_CHECKING:
    from verify.gpu.peer_memory.allreduce import PeerAllReduce


class UnfusedJoin:
    """The same one-shot sum as a kernel of its own: tells fusing from not being the library's."""

    allreduce = "custom"

    def __init__(self, peers: PeerAllReduce, kernels: Kernels) -> None:
        """Bind the peers' memory and the model's own kernels."""
        self._peers, self._kernels = peers, kernels
        self.num_allreduces = self.num_fused = 0

    def __call__(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + sum of the ranks' deltas`, and that sum."""
        self.num_allreduces += 1
        return self._kernels.add_rms_norm(self._peers.one_shot(delta), residual, weight, eps)


@dataclass(frozen=True)
class OneShot:
    """Captured, with our one-shot sum and a norm behind it: fusing's fair rival."""

    name: str = "captured, one-shot + norm"

    def build(self, model: TargetModel, width: int, threads: int) -> VerifyStep:
        """Capture the step with the unfused sum."""
        from verify.gpu.peer_memory.allreduce import PeerAllReduce

        local = cast(Llama, model)
        assert dist.group.WORLD is not None
        peers = PeerAllReduce(dist.group.WORLD, model.device, width * model.shape.hidden_size)
        join = UnfusedJoin(peers, local.kernels)
        return CudaGraphStep(model.with_join(join), width)

    def contradiction(self, proof: Proof) -> str | None:
        """Accept anything: this is a benchmark's cell."""
        return None


@dataclass(frozen=True)
class Silent:
    """No communication: each rank's part of the work, for the breakdown.

    Eager, the library is still called, by each rank alone: its host time is launch, not waiting.
    """

    captured: bool
    name: str = "silent"

    def build(self, model: TargetModel, width: int, threads: int) -> VerifyStep:
        """Build the step with local joins and this rank's part of the head."""
        local = cast(Llama, model)
        join: Join = LocalJoin(local.kernels)
        if not self.captured:
            alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
            join = SeparateJoin(local.kernels, alone[dist.get_rank()])
        silent = local.with_join(join)
        head = cast(VocabularyParallelHead, local.weights.head)
        silent.weights = local.weights._replace(head=head.own)
        backend = GraphCaptured() if self.captured else Extend()
        return backend.build(silent, width, threads)

    def contradiction(self, proof: Proof) -> str | None:
        """Accept anything: this is a benchmark's cell."""
        return None


CELLS: dict[str, BuildsStep] = {
    "extend, nccl": Extend(),
    "captured, nccl": GraphCaptured(),
    "captured, one-shot + norm": OneShot(),
    "captured, fused": FusedAllreduce(),
}
