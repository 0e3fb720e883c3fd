"""Verify as a captured step in which all-reduce, residual add and RMSNorm are one kernel."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verify.base import Proof, ServerMode, TargetModel
from verify.graph_captured import outside_capture

if TYPE_CHECKING:
    from verify.base import VerifyStep

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class FusedAllreduce:
    """Settings of the fused backend; it needs several ranks.

    On GPUs every rank writes into the others' memory in one shot; on a CPU the last product of a
    block goes straight into memory that all ranks read. Nothing falls back: what cannot run is
    refused when the step is built, and the proof counts what ran.
    """

    name: str = "fused_allreduce"

    @property
    def min_ranks(self) -> int:
        """One rank has nothing to reduce."""
        return 2

    @property
    def captures_verify(self) -> bool:
        """Return true: steps are replayed."""
        return True

    @property
    def fuses_allreduce(self) -> bool:
        """Return true: a block ends in one kernel."""
        return True

    def server_mode(self) -> ServerMode:
        """Have everything captured, with fusion."""
        return ServerMode(captures_decode=True, captures_verify=True, allreduce="fused")

    def build(self, model: TargetModel, width: int, threads: int) -> VerifyStep:
        """Capture the step at `width` rows with the fused kernel at the end of every block.

        Raises:
            ValueError: One rank, GPUs without peer access, or a CPU without a compiled step.
        """
        if model.join.allreduce == "none":
            raise ValueError(
                "verify=fused_allreduce: one rank has nothing to reduce; set parallelism.tp=2 or"
                " more, or use verify=graph_captured"
            )
        if model.device.type == "cuda":
            return self._on_gpus(model, width)
        return self._on_cpu(model, width)

    def contradiction(self, proof: Proof) -> str | None:
        """Say so if steps ran outside the capture or all-reduces outside the fused kernel.

        A server fuses those that the architecture's layers offer; it must have fused all of these.
        """
        offered = proof.fusable_allreduces_per_step
        wanted = proof.allreduces_per_step if offered is None else offered
        if not proof.fused_allreduces_per_step >= wanted > 0:
            return (
                f"{proof.fused_allreduces_per_step:g} of {proof.allreduces_per_step:g} all-reduces"
                f" a step were fused ({proof.allreduce}); a fused_allreduce cell needs"
                f" {'all' if offered is None else f'{max(offered, 1):g}'}"
            )
        return outside_capture(proof)

    def _on_gpus(self, model: TargetModel, width: int) -> VerifyStep:
        """Set up peer memory, say what fusing gains at this size, and capture."""
        import torch.distributed as dist

        from verify.gpu.cuda_graph import CudaGraphStep
        from verify.gpu.peer_memory.allreduce import FusedJoin, PeerAllReduce
        from verify.gpu.peer_memory.latency import latencies

        group, hidden = dist.group.WORLD, model.shape.hidden_size
        assert group is not None
        peers = PeerAllReduce(group, model.device, width * hidden)
        found = latencies(peers, group, model.device, (width, hidden))
        ways = ("fused", "one-shot + norm", "nccl + norm")
        _log_fastest(width, {way: found[way].captured_us for way in ways})
        return CudaGraphStep(model.with_join(FusedJoin(peers)), width)

    def _on_cpu(self, model: TargetModel, width: int) -> VerifyStep:
        """Say what fusing gains at this size, and bind the compiled step."""
        from verify.native.capture import PlannedStep
        from verify.native.plan import join_times_us

        if model.plan is None:
            raise ValueError(
                "verify=fused_allreduce: on a CPU the fused sum is part of the compiled step, which"
                " needs a C compiler, engine.native=auto and a target in packed blocks (GGUF); use"
                " verify=extend"
            )
        found = join_times_us(model.plan, (width, model.shape.hidden_size))
        _log_fastest(width, found)
        return PlannedStep(model, model.plan.summing("fused"), width)


def _log_fastest(width: int, found: dict[str, float]) -> None:
    """Log times of a block's end, captured, in microseconds: a fused one that loses is seen."""
    line = ", ".join(f"{way} {us:.1f} us" for way, us in found.items())
    best = min(found, key=lambda way: found[way])
    _LOG.info("all-reduce at width %d, captured: %s; fastest here: %s", width, line, best)
