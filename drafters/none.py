"""No drafter: plain decoding, an ordinary arm of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

from drafters.base import Context, Draft, TargetInfo


@dataclass(frozen=True)
class NoDrafter:
    """Propose nothing, so that a verify step is a plain decode step."""

    name: str = "none"

    @property
    def num_draft_tokens(self) -> int:
        """Return 0: a step has the root alone."""
        return 0

    def capture_layers(self, num_layers: int) -> tuple[int, ...]:
        """Return no layers."""
        return ()

    def start(self, target: TargetInfo) -> NoDrafter:
        """Return the drafter itself: it has neither weights nor state."""
        return self

    def begin(self, context: Context) -> None:
        """Read nothing."""

    def propose(self, context: Context) -> Draft:
        """Return the empty draft."""
        return Draft((), ())

    def close(self) -> None:
        """Hold nothing."""

    def sglang_arguments(self) -> dict[str, str | int | float]:
        """Return no argument: SGLang decodes plainly by default."""
        return {}
