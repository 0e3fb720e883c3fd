"""Verify as a captured step: fixed width, fixed buffers, replayed without Python in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verify.base import Proof, ServerMode, TargetModel

if TYPE_CHECKING:
    from verify.base import VerifyStep

# Below this share the label would describe something else than what was timed.
LEAST_GRAPH_SHARE = 0.99


@dataclass(frozen=True)
class GraphCaptured:
    """Settings of the captured backend.

    On a GPU a step is one CUDA graph; on a CPU it is one call of compiled code, or, without a C
    compiler, a frozen trace. The proof names which.

    Attributes:
        allreduce: Sum over ranks inside the capture: `auto` (the engine's own choice without
            fusion), `nccl` or `custom`. Most of what fusion seems to gain is often "not NCCL".
    """

    name: str = "graph_captured"
    allreduce: str = "auto"

    def __post_init__(self) -> None:
        """Check the name."""
        if self.allreduce not in ("auto", "nccl", "custom"):
            raise ValueError(f"verify.allreduce={self.allreduce}: must be auto, nccl or custom")

    def server_mode(self) -> ServerMode:
        """Have everything captured, without fusion."""
        return ServerMode(captures_decode=True, captures_verify=True, allreduce=self.allreduce)

    def build(self, model: TargetModel, width: int, threads: int) -> VerifyStep:
        """Capture the step at `width` rows; narrower drafts are padded to it."""
        if self.allreduce not in ("auto", model.join.allreduce):
            raise ValueError(
                f"verify.allreduce={self.allreduce}: engine=torch sums over ranks with"
                f" {model.join.allreduce}; use verify.allreduce=auto or engine=sglang"
            )
        if model.device.type == "cuda":
            from verify.cuda_graph import CudaGraphStep

            return CudaGraphStep(model, width)
        from verify.cpu_capture import PlannedStep, TracedStep

        if model.plan is not None:
            return PlannedStep(model.plan, model.linear, width)
        return TracedStep(model, width)

    def contradiction(self, proof: Proof) -> str | None:
        """Say so if steps ran outside the capture, or summed over ranks in another way."""
        if self.allreduce not in ("auto", proof.allreduce) and proof.allreduces_per_step:
            return (
                f"all-reduces ran as {proof.allreduce}; verify.allreduce={self.allreduce} was asked"
            )
        if proof.graph_share < LEAST_GRAPH_SHARE:
            return (
                f"{proof.graph_share:.1%} of {proof.num_verify_steps} verify steps were replayed"
                f" from a capture ({proof.capture}); a graph_captured cell needs"
                f" {LEAST_GRAPH_SHARE:.0%}"
            )
        return None
