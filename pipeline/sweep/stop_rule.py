"""When a cell is measured well enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipeline.measure.statistics import stop_reason
from pipeline.record.record import CellRecord


@dataclass(frozen=True)
class Measuring:
    """When a cell is measured well enough (see `pipeline.measure.statistics.stop_reason`).

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


def check_positive(setting: str, value: Any) -> None:
    """Refuse what is not a number above zero.

    Raises:
        ValueError: Naming the setting.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ValueError(f"{setting}={value}: must be a number above 0")
