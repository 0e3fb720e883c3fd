"""Everything that follows from one situation: levers in order, the decision, what does not fit.

Whoever recommends something (the report's first lines and tables, the plan, typed-in numbers) asks
`Verdict.decision`: there is one rule, so that no two places can disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from pipeline.roi.contradictions import clashes
from pipeline.roi.levers.accept_length import accept_levers
from pipeline.roi.levers.gain import Basis, Gain, Side, ranked
from pipeline.roi.levers.step_time import step_levers
from pipeline.roi.numbers import Numbers
from pipeline.roi.situation import Situation, close


class Ground(StrEnum):
    """Why a decision is what it is."""

    PAYS = "speculation pays already, and this raises it"
    SURE = "it closes the gap even at its low end"
    ABLE = "it closes the gap at its high end"
    BOUND = "only a bound could close the gap alone"
    TOGETHER = "no lever closes the gap alone, these do together"
    KEEP = "speculation pays already, and nothing is known to raise it"
    PLAIN = "nothing is known to close the gap"


@dataclass(frozen=True)
class Decision:
    """What to invest in next.

    Attributes:
        ground: Why.
        levers: The lever; two for `TOGETHER`; none for `KEEP` and `PLAIN`.
        rivals: How many levers the ground holds for, this one included.
    """

    ground: Ground
    levers: tuple[Gain, ...] = ()
    rivals: int = 1

    def ends(self, now: float) -> tuple[float, float]:
        """Return the ends of what a speed of `now` becomes; those of several levers multiply."""
        low = high = now
        for lever in self.levers:
            low, high = low * lever.factor.low, high * lever.factor.high
        return low, high


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
    def decision(self) -> Decision:
        """What to invest in next; see `decide`."""
        return decide(self.situation.speed_up, self.gains)


def from_numbers(numbers: Numbers) -> Verdict:
    """Judge typed-in numbers.

    Raises:
        ValueError: They are too few or impossible.
    """
    return weigh_levers(close(numbers), numbers)


def weigh_levers(at: Situation, numbers: Numbers, extra: tuple[Gain, ...] = ()) -> Verdict:
    """Judge a situation; `extra` are levers that were measured as cells of their own.

    Raises:
        ValueError: A wish among the numbers cannot come true.
    """
    gains = [*extra, *accept_levers(at, numbers), *step_levers(at, numbers)]
    gains = [g for g in gains if g.factor.high > 1 or g.factor.basis is Basis.ASSUMED]
    return Verdict(at, tuple(ranked(gains)), tuple(clashes(at)))


def decide(speed_up: float, gains: Iterable[Gain]) -> Decision:
    """Choose what to invest in next: a lever that cannot close the gap to plain decoding never is.

    Above break-even it is the lever that gains most among those that gain even at their low end,
    or else by the middle of their range. Below it, the first that there is of: a lever that closes
    the gap at its low end; one that does at its high end; a bound that does, the one that needs the
    smallest part of its range; two levers that do together, bounds only where others do not.
    Levers on the load are left out: they move plain decoding too.

    Args:
        speed_up: Today's, above 0.
        gains: What is known of each lever.
    """
    able = ranked([g for g in gains if g.side is not Side.LOAD])
    real = [g for g in able if not g.limits]
    if speed_up > 1:
        sure = [g for g in real if g.factor.low > 1]
        likely = [g for g in real if g.factor.middle > 1]
        return _first(Ground.PAYS, sure or likely) or Decision(Ground.KEEP)
    bounds = [g for g in able if g.limits and _closes(speed_up, g)]
    return (
        _first(Ground.SURE, [g for g in real if speed_up * g.factor.low >= 1])
        or _first(Ground.ABLE, [g for g in real if _closes(speed_up, g)])
        or _first(Ground.BOUND, sorted(bounds, key=lambda g: _part(speed_up, g)))
        or _pair(speed_up, real)
        or _pair(speed_up, able)
        or Decision(Ground.PLAIN)
    )


def _first(ground: Ground, levers: list[Gain]) -> Decision | None:
    """Return the decision for the first of some levers, None where there is none."""
    return Decision(ground, (levers[0],), len(levers)) if levers else None


def _pair(speed_up: float, gains: list[Gain]) -> Decision | None:
    """Return the best lever on accept length with the best on step time, if they close the gap."""
    sides = ([g for g in gains if g.side is side] for side in (Side.ACCEPT, Side.STEP))
    pairs = [(a, b) for a, b in product(*sides) if _closes(speed_up, a, b)]
    if not pairs:
        return None
    best = max(
        pairs, key=lambda p: (-p[0].limits - p[1].limits, p[0].factor.middle * p[1].factor.middle)
    )
    return Decision(Ground.TOGETHER, best, len(pairs))


def _closes(speed_up: float, *gains: Gain) -> bool:
    """Say whether levers at their high ends bring the speed-up to 1."""
    return Decision(Ground.ABLE, gains).ends(speed_up)[1] >= 1


def _part(speed_up: float, bound: Gain) -> float:
    """Return the share of a bound's whole range that breaking even takes.

    Step time: from today's down to the bound's. Accept length: from today's up to the bound's.
    """
    if bound.side is Side.STEP:
        return (1 - speed_up) / (1 - 1 / bound.factor.high)
    return (1 / speed_up - 1) / (bound.factor.high - 1)
