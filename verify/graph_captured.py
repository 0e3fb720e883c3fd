"""Verify as a captured step: fixed width, fixed buffers, replayed without Python in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verify.base import Proof, ServerMode, TargetModel

if TYPE_CHECKING:
    from verify.base import VerifyStep

# Below this share the label would describe something else than what was timed.
LEAST_GRAPH_SHARE = 0.99
ALLREDUCES = ("auto", "nccl", "custom", "shared_memory", "gloo")


@dataclass(frozen=True)
class GraphCaptured:
    """Settings of the captured backend.

    On a GPU a step is one CUDA graph; on a CPU it is one call of compiled code, or, without a C
    compiler, a frozen trace. The proof names which.

    Attributes:
        allreduce: Sum over ranks inside the capture: `auto` (the engine's best without fusion);
            `nccl` or `custom` on GPUs; `shared_memory` or `gloo` on a CPU. Most of what fusion
            seems to gain is often "not NCCL any more", or "not gloo any more".
    """

    name: str = "graph_captured"
    allreduce: str = "auto"

    def __post_init__(self) -> None:
        """Check the name."""
        if self.allreduce not in ALLREDUCES:
            raise ValueError(
                f"verify.allreduce={self.allreduce}: must be {', '.join(ALLREDUCES[:-1])} or"
                f" {ALLREDUCES[-1]}"
            )

    @property
    def min_ranks(self) -> int:
        """One rank has nothing to sum in a way of its own."""
        return 1 if self.allreduce == "auto" else 2

    @property
    def captures_verify(self) -> bool:
        """Return true: steps are replayed."""
        return True

    @property
    def fuses_allreduce(self) -> bool:
        """Return false: sum, add and norm stay apart."""
        return False

    def server_mode(self) -> ServerMode:
        """Have everything captured, without fusion."""
        return ServerMode(captures_decode=True, captures_verify=True, allreduce=self.allreduce)

    def build(self, model: TargetModel, width: int, threads: int) -> VerifyStep:
        """Capture the step at `width` rows; narrower drafts are padded to it.

        Raises:
            ValueError: Ranks cannot sum as asked here, or a CPU trace would leave their sums out.
        """
        if model.plan is not None:
            from verify.native.capture import PlannedStep

            way = model.plan.ways[0] if self.allreduce == "auto" else self.allreduce
            return PlannedStep(model, model.plan.summing(way), width)
        if self.allreduce not in ("auto", model.join.allreduce):
            raise ValueError(
                f"verify.allreduce={self.allreduce}: engine=torch sums over ranks with"
                f" {model.join.allreduce} here; use verify.allreduce=auto or engine=sglang"
            )
        if model.device.type == "cuda":
            from verify.gpu.cuda_graph import CudaGraphStep

            return CudaGraphStep(model, width)
        from verify.native.capture import TracedStep

        return TracedStep(model, width)

    def contradiction(self, proof: Proof) -> str | None:
        """Say so if steps ran outside the capture, or summed over ranks in another way."""
        if self.allreduce not in ("auto", proof.allreduce) and proof.allreduces_per_step:
            return (
                f"all-reduces ran as {proof.allreduce}; verify.allreduce={self.allreduce} was asked"
            )
        if proof.fused_allreduces_per_step:
            return (
                f"{proof.fused_allreduces_per_step:g} of {proof.allreduces_per_step:g} all-reduces"
                " a step were fused; a graph_captured cell fuses none"
            )
        return outside_capture(proof)


def outside_capture(proof: Proof) -> str | None:
    """Say so if too many steps ran outside the capture."""
    if proof.graph_share >= LEAST_GRAPH_SHARE:
        return None
    return (
        f"{proof.graph_share:.1%} of {proof.num_verify_steps} verify steps were replayed from a"
        f" capture ({proof.capture}); a captured cell needs {LEAST_GRAPH_SHARE:.0%}"
    )
