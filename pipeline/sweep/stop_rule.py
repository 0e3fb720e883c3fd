"""Decide when a cell has been repeated often enough: precise, or out of its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.cell.response import Response
from pipeline.config.instantiate import check_positive
from pipeline.measure.statistics import half_width, noise


@dataclass(frozen=True)
class StopRule:
    """Precision and budgets that end the repetitions of a cell.

    The interval here is that of repetition noise with the prompts held fixed (`half_width`), since
    that is all that repeating can improve; the reported intervals are wider, over prompts.

    Attributes:
        precision: Wanted half-width of tok/s as a share of it.
        min_repetitions: Repetitions before `precision` may end a cell. Budgets end it even so.
        max_repetitions: Budget of repetitions.
        max_seconds: Budget of generation time, prefill included; a repetition that would pass it
            is not begun. The first one always runs.
    """

    precision: float = 0.02
    min_repetitions: int = 3
    max_repetitions: int = 20
    max_seconds: float = 300.0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: One is out of its range, or the least is more than the most.
        """
        for name in ("precision", "min_repetitions", "max_repetitions", "max_seconds"):
            check_positive(f"measurement.{name}", getattr(self, name))
        if self.precision >= 1:
            raise ValueError(
                f"measurement.precision={self.precision}: a share of tok/s, below 1; 0.02 is 2 %"
            )
        if self.min_repetitions > self.max_repetitions:
            raise ValueError(
                f"measurement.min_repetitions={self.min_repetitions} is more than"
                f" measurement.max_repetitions={self.max_repetitions}; raise the second"
            )

    def stop(self, repetitions: Sequence[Sequence[Response]]) -> str:
        """Say why the prompts need not be repeated again, or "" to go on."""
        count = len(repetitions)
        if count == 0:
            return ""
        width = half_width(repetitions)
        seconds = sum(r.prefill_ms + r.decode_ms for rep in repetitions for r in rep) / 1000
        if count >= self.min_repetitions and width <= self.precision:
            return f"precise: ±{100 * width:.1f} % of tok/s after {count} repetitions"
        after = f"{noise(repetitions)} of tok/s after {count} repetitions"
        if count == 1:
            after = "noise of tok/s unknown after 1 repetition"
        if count == 2:
            after = f"tok/s of its {noise(repetitions)}"
        if count >= self.max_repetitions:
            return f"max_repetitions {self.max_repetitions} reached: {after}"
        if seconds * (count + 1) / count > self.max_seconds:
            spent = f"{seconds:.1f} s spent, no time for another"
            return f"max_seconds {self.max_seconds:g}: {spent}: {after}"
        return ""
