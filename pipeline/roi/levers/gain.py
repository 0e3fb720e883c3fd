"""A worth that is known only between two ends, and why anyone should believe it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """Where a range comes from, the strongest first."""

    MEASURED = "measured here"
    PUBLIC = "public figures"
    BOUND = "arithmetic bound"
    ASSUMED = "your assumption"


@dataclass(frozen=True)
class Range:
    """Two ends of one quantity.

    Attributes:
        low: The smaller end.
        high: The larger end.
        basis: What kind of evidence it is.
        source: The evidence itself: a public address, a cell's name, the formula.
    """

    low: float
    high: float
    basis: Basis
    source: str

    def __post_init__(self) -> None:
        """Put the ends in order; a range built from its larger end first is turned round."""
        if self.low > self.high:
            low, high = self.high, self.low
            object.__setattr__(self, "low", low)
            object.__setattr__(self, "high", high)

    @property
    def middle(self) -> float:
        """The geometric middle: what ranks levers, since speed-ups multiply."""
        return math.sqrt(self.low * self.high)

    @property
    def spread(self) -> float:
        """How uncertain it is: `high / low`, 1 for a known number."""
        return self.high / self.low


def known(value: float, basis: Basis, source: str) -> Range:
    """Return the range of a single number."""
    return Range(value, value, basis, source)
