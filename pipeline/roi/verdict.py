"""Everything that follows from one situation: levers in order, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.roi.contradictions import clashes
from pipeline.roi.levers.accept_length import accept_levers
from pipeline.roi.levers.gain import Basis, Gain, Side, ranked
from pipeline.roi.levers.step_time import step_levers
from pipeline.roi.numbers import Numbers
from pipeline.roi.situation import Situation, close


@dataclass(frozen=True)
class Verdict:
    """A situation and what can be done about it.

    Attributes:
        situation: Where someone stands.
        gains: The levers by gain, bounds last.
        clashes: What in the numbers cannot be true.
    """

    situation: Situation
    gains: tuple[Gain, ...]
    clashes: tuple[str, ...]

    @property
    def first(self) -> Gain | None:
        """The lever to pull: the most gain among those that gain at their low end, else of all."""
        able = [g for g in self.gains if not g.limits and g.side is not Side.LOAD]
        sure = (g for g in able if g.factor.low > 1)
        return next(sure, next((g for g in able if g.factor.middle > 1), None))


def from_numbers(numbers: Numbers) -> Verdict:
    """Judge typed-in numbers.

    Raises:
        ValueError: They are too few or impossible.
    """
    at = close(numbers)
    return weigh_levers(at, numbers)


def weigh_levers(at: Situation, numbers: Numbers, extra: tuple[Gain, ...] = ()) -> Verdict:
    """Judge a situation; `extra` are levers that were measured as cells of their own."""
    gains = [*extra, *accept_levers(at, numbers), *step_levers(at, numbers)]
    gains = [g for g in gains if g.factor.high > 1 or g.factor.basis is Basis.ASSUMED]
    return Verdict(at, tuple(ranked(gains)), tuple(clashes(at)))
