"""Standalone drafter: a whole, smaller model of the same vocabulary; a server runs it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Standalone:
    """Settings of a drafter that is a model by itself.

    Attributes:
        model: Folder or hub id of the small model.
        num_draft_tokens: Draft tokens of a step, a chain.
    """

    model: str
    name: str = "standalone"
    num_draft_tokens: int = 3

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.num_draft_tokens < 1:
            raise ValueError(f"drafter.num_draft_tokens={self.num_draft_tokens}: must be 1 or more")
        if not self.model:
            raise ValueError(
                "drafter.model is empty: name a small model of the target's vocabulary"
            )

    def sglang_arguments(self) -> dict[str, str | int | float]:
        """Return the arguments of SGLang's standalone drafter."""
        return {
            "speculative-algorithm": "STANDALONE",
            "speculative-draft-model-path": self.model,
            "speculative-num-steps": self.num_draft_tokens,
            "speculative-eagle-topk": 1,
        }
