"""Verify as a prefill-style forward: eager, of variable length, launched operation by operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from verify.base import Proof, ServerMode, StepInput, StepOutput, TargetModel

if TYPE_CHECKING:
    from verify.base import VerifyStep


@dataclass(frozen=True)
class Extend:
    """Settings of the eager backend.

    Attributes:
        scope: What a server runs eagerly: `verify` steps alone, while plain decode and drafter stay
            captured, or `all`. The torch engine runs everything eagerly.
    """

    name: str = "extend"
    scope: str = "verify"

    def __post_init__(self) -> None:
        """Check the name."""
        if self.scope not in ("verify", "all"):
            raise ValueError(f"verify.scope={self.scope}: must be verify or all")

    @property
    def captures_verify(self) -> bool:
        """Return false: every step is launched anew."""
        return False

    @property
    def fuses_allreduce(self) -> bool:
        """Return false: sum, add and norm stay apart."""
        return False

    def server_mode(self) -> ServerMode:
        """Keep verify steps out of the server's graphs, or everything."""
        return ServerMode(captures_decode=self.scope == "verify", captures_verify=False)

    def build(self, model: TargetModel, width: int, threads: int) -> VerifyStep:
        """Return the eager step; it takes any width."""
        return EagerStep(model)

    def contradiction(self, proof: Proof) -> str | None:
        """Say so if any step was replayed from a capture.

        A server's plain decode is outside `scope=verify`: there it has no verify step to be eager.
        """
        if self.scope == "verify" and proof.step == "decode":
            return None
        if proof.num_captured_steps:
            return (
                f"{proof.num_captured_steps} of {proof.num_verify_steps} verify steps were replayed"
                f" from a capture ({proof.capture}); an extend cell runs none"
            )
        return None


class EagerStep:
    """Counts eager forwards of a model."""

    def __init__(self, model: TargetModel) -> None:
        """Bind the model."""
        self._model = model
        self.reset_counts()

    def __call__(self, step: StepInput) -> StepOutput:
        """Run exactly the rows that there are."""
        join = self._model.join
        before = join.num_allreduces, join.num_fused
        out = self._model.forward(step)
        self._num_steps += 1
        self._allreduces += join.num_allreduces - before[0]
        self._fused += join.num_fused - before[1]
        return out

    @property
    def proof(self) -> Proof:
        """No step was captured."""
        return Proof(
            capture="none",
            num_verify_steps=self._num_steps,
            num_captured_steps=0,
            linear=self._model.linear,
            attention=f"{self._model.attention} over the slots in use",
            allreduce=self._model.join.allreduce,
            allreduces_per_step=self._allreduces / max(self._num_steps, 1),
            fused_allreduces_per_step=self._fused / max(self._num_steps, 1),
        )

    def reset_counts(self) -> None:
        """Start counting at zero."""
        self._num_steps = self._allreduces = self._fused = 0

    def close(self) -> None:
        """Hold nothing."""
