"""Represent and rank what levers are worth: a range between two ends, its evidence, and its side.

A `Range` carries the basis that it rests on, a `Gain` the factor of the speed that it moves; gains
of different sides multiply, and bounds rank last.
"""

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


class Side(StrEnum):
    """Which factor of the speed a lever moves; levers of different sides multiply."""

    ACCEPT = "accept length"
    STEP = "step time"
    BOTH = "both"
    LOAD = "load"  # changes what plain decoding does too: only the speed-up compares


@dataclass(frozen=True)
class Gain:
    """One thing to invest in.

    Attributes:
        name: What is done.
        side: What it moves.
        change: The quantity it moves, from and to, in words.
        factor: What it multiplies tok/s by.
        narrowed_by: The one measurement that would narrow `factor`.
        limits: Whether this is only a bound that nobody can reach.
    """

    name: str
    side: Side
    change: str
    factor: Range
    narrowed_by: str
    limits: bool = False

    def tok_s(self, now: float) -> tuple[float, float]:
        """Return the ends of the speed it gives."""
        return now * self.factor.low, now * self.factor.high


def ranked(gains: list[Gain]) -> list[Gain]:
    """Return the levers by gain: the middle of the range, then its lower end. Bounds come last."""
    return sorted(gains, key=lambda g: (g.limits, -g.factor.middle, -g.factor.low))


def together(gains: list[Gain]) -> tuple[Gain, Gain, float, float] | None:
    """Return the best lever of each side and the ends of their joint factor, or None.

    Accept length and step time multiply: `tok/s = accept length / step`.
    """
    best = {}
    for gain in reversed(ranked([g for g in gains if not g.limits])):
        best[gain.side] = gain
    if Side.ACCEPT not in best or Side.STEP not in best:
        return None
    a, b = best[Side.ACCEPT], best[Side.STEP]
    return a, b, a.factor.low * b.factor.low, a.factor.high * b.factor.high


def widest(gains: list[Gain]) -> Gain | None:
    """Return the lever whose worth is known least, among those that someone could pull."""
    able = [g for g in gains if not g.limits and g.factor.spread > 1]
    return max(able, key=lambda g: g.factor.spread, default=None)
