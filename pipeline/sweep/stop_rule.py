"""Decide when a cell has been repeated often enough: precise, or out of its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.cell.response import Response
from pipeline.config.instantiate import check_positive
from pipeline.measure.statistics import half_width, noise
from pipeline.record.record import CellRecord


@dataclass(frozen=True)
class StopRule:
    """Precision and budgets that end the repetitions of a cell (see `stop_reason`).

    Attributes:
        precision: Wanted half-width of tok/s as a share of it.
        max_seconds: Budget of generation time of one cell.
    """

    precision: float = 0.02
    min_repetitions: int = 3
    max_repetitions: int = 20
    max_seconds: float = 300.0

    def __post_init__(self) -> None:
        """Check the ranges."""
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

    def stop(self, record: CellRecord) -> str:
        """Say why the cell needs no more repetitions, or ""."""
        return stop_reason(
            record.repetitions,
            self.precision,
            self.min_repetitions,
            self.max_repetitions,
            self.max_seconds,
        )


def stop_reason(
    repetitions: Sequence[Sequence[Response]],
    precision: float,
    min_repetitions: int,
    max_repetitions: int,
    max_seconds: float,
) -> str:
    """Say why a cell should not be repeated again, or "" to go on.

    The interval here is that of repetition noise with the prompts held fixed (`half_width`), since
    that is all that repeating can improve; the reported intervals are wider, over prompts.

    Args:
        repetitions: Finished repetitions of the same prompts.
        precision: Wanted half-width of tok/s as a share of it, such as 0.02.
        min_repetitions: Repetitions before `precision` may end it. Budgets end it even so.
        max_repetitions: Budget of repetitions.
        max_seconds: Budget of generation time, prefill included; a repetition that would pass it
            is not begun. The first one always runs.
    """
    count = len(repetitions)
    if count == 0:
        return ""
    width = half_width(repetitions)
    seconds = sum(r.prefill_ms + r.decode_ms for rep in repetitions for r in rep) / 1000
    if count >= min_repetitions and width <= precision:
        return f"precise: ±{100 * width:.1f} % of tok/s after {count} repetitions"
    after = f"{noise(repetitions)} of tok/s after {count} repetitions"
    if count == 1:
        after = "noise of tok/s unknown after 1 repetition"
    if count == 2:
        after = f"tok/s of its {noise(repetitions)}"
    if count >= max_repetitions:
        return f"max_repetitions {max_repetitions} reached: {after}"
    if seconds * (count + 1) / count > max_seconds:
        return f"max_seconds {max_seconds:g}: {seconds:.1f} s spent, no time for another: {after}"
    return ""
