"""What the gate found: facts that are equal or not, each with its place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Weight(StrEnum):
    """What a finding does to the verdict: only `worse` and `changed` fail."""

    WORSE = "worse"
    CHANGED = "changed"
    BETTER = "better"


@dataclass(frozen=True)
class Finding:
    """One exact thing that is not what it was.

    Attributes:
        kind: `output`, `acceptance`, `steps`, `engine` or `void`.
        cell: The cell's label.
        text: What changed, from what to what; one line.
        prompt: Id of the prompt where it began; "" where it is about the whole cell.
        position: Output token where it began; -1 where it is about more than one.
    """

    kind: str
    weight: Weight
    cell: str
    text: str
    prompt: str = ""
    position: int = -1

    @property
    def fails(self) -> bool:
        """Whether the gate fails for it."""
        return self.weight is not Weight.BETTER

    @property
    def place(self) -> str:
        """Cell, prompt and output token, as far as there are any."""
        parts = [self.cell]
        if self.prompt:
            parts.append(f"prompt {self.prompt}")
        if self.position >= 0:
            parts.append(f"output token {self.position}")
        return ", ".join(parts)

    def __str__(self) -> str:
        """Write it in one line."""
        return f"{self.kind} {self.weight}: {self.place}: {self.text}"
