"""Everything that follows from a situation: levers in order, the decision, what does not fit.

Whoever recommends something (the report's first lines and tables, the plan, typed-in numbers) asks
`Verdict.decision`: there is one rule, so that no two places can disagree. A finished sweep has one
verdict per workload class, from what its cells measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures, Levers, Versus
from pipeline.measure.statistics import Interval
from pipeline.measure.wording import number
from pipeline.record.record import CellRecord
from pipeline.roi.contradictions import clashes
from pipeline.roi.levers.accept_length import accept_levers, cut
from pipeline.roi.levers.gain import Basis, Gain, Range, Side, known, ranked
from pipeline.roi.levers.step_time import step_levers
from pipeline.roi.numbers import Numbers
from pipeline.roi.situation import Situation, close

CAPTURED = 0.99  # share of replayed steps that counts as captured


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


@dataclass(frozen=True)
class ClassVerdict:
    """The verdict on one workload class, from the speculative cell that stands for it.

    That is the fastest of those shown to gain, or the fastest of all where none is: the same as in
    the report's first lines.

    Attributes:
        category: The workload class.
        name: The cell's name.
        record: The cell.
        verdict: Where it stands and what each lever is worth.
        speed_up: Its speed-up as the tables state it.
        levers: What that is made of.
    """

    category: str
    name: str
    record: CellRecord
    verdict: Verdict
    speed_up: Interval
    levers: Levers

    @property
    def shown(self) -> bool:
        """Whether the whole interval of its speed-up lies above 1."""
        return self.speed_up.low > 1

    @property
    def decided(self) -> bool:
        """Whether that interval lies on one side of 1."""
        return self.shown or self.speed_up.high < 1


def class_verdicts(comparison: Comparison, names: Mapping[str, str]) -> list[ClassVerdict]:
    """Judge each class by the speculative cell that stands for it, in the workload's order."""
    records = {r.cell_id: r for r in comparison.records}
    stands: dict[str, tuple[str, Figures, Versus]] = {}
    for cell_id, category, figures in drafted(comparison):
        if figures.versus and (category not in stands or figures.rank > stands[category][1].rank):
            stands[category] = (cell_id, figures, figures.versus)
    found = []
    for category, (cell_id, figures, versus) in stands.items():
        record = records[cell_id]
        at = situation(record, figures)
        extra = tuple(_cells(comparison, names, record, category))
        if not record.held_accept_length:  # what was accepted, draft by draft, is the drafter's
            extra += tuple(_narrower(at, figures))
        judged = weigh_levers(at, Numbers({}, {}), extra)
        if record.batch > 1:  # levers of more load: public figures begin at batch 1
            gains = tuple(g for g in judged.gains if g.side is not Side.LOAD)
            judged = replace(judged, gains=gains)
        found.append(
            ClassVerdict(category, names[cell_id], record, judged, versus.speed_up, versus.levers)
        )
    return found


def furthest(verdicts: Sequence[ClassVerdict]) -> ClassVerdict:
    """Return the class that is furthest from paying: the one whose next step comes first."""
    return min(verdicts, key=lambda found: found.speed_up.value)


def drafted(comparison: Comparison) -> Iterator[tuple[str, str, Figures]]:
    """Yield cell id, class and figures of every speculative cell that has a baseline."""
    for cell_id, measurement in comparison.measurements.items():
        for category, figures in measurement.classes.items():
            if not measurement.is_baseline and figures.versus:
                yield cell_id, category, figures


def situation(record: CellRecord, figures: Figures) -> Situation:
    """Return one cell's situation on one class; the figures must have a baseline.

    Raises:
        ValueError: There is no baseline.
    """
    if figures.versus is None:
        raise ValueError(f"{record.label}: no baseline to break even with; run drafter=none too")
    levers, proof = figures.versus.levers, record.proof
    return Situation(
        drafter=record.params["drafter"],
        baseline_tok_s=1000 / levers.ms_per_token,
        accept_length=levers.accept_length,
        tok_s=1000 * levers.accept_length / levers.step_ms,
        step_ms=levers.step_ms,
        verify_ms=levers.verify_ms,
        width=levers.width,
        decode_ms=levers.decode_ms,
        allreduce_ms=math.nan,
        allreduces=proof.allreduces_per_step if proof else 0.0,
        draft_ms=figures.draft_ms,
        copies_text=record.abilities.copies_text,
        captured=proof is not None and proof.graph_share > CAPTURED,
    )


def _cells(
    comparison: Comparison, names: Mapping[str, str], record: CellRecord, category: str
) -> Iterator[Gain]:
    """Yield the other cells of the sweep as levers whose worth was measured."""
    own = comparison.measurements[record.cell_id].classes[category]
    others = {r.cell_id: r for r in comparison.records}
    for cell_id, of_class, figures in drafted(comparison):
        if cell_id == record.cell_id or of_class != category:
            continue
        same = others[cell_id].params["drafter"] == record.params["drafter"]
        ratio = figures.speed_up / own.speed_up
        what = "verify backend" if same else "drafter"
        yield Gain(
            f"{names[cell_id]} instead",
            Side.STEP if same else Side.BOTH,
            f"another {what}: {number(own.tok_s.value)} → {number(ratio * own.tok_s.value)} tok/s",
            known(ratio, Basis.MEASURED, f"cell {cell_id}"),
            "nothing: it was measured",
        )


def _narrower(at: Situation, figures: Figures) -> Iterator[Gain]:
    """Yield the narrower widths that could pay, cut out of the histogram of committed tokens."""
    if at.width <= 2 or sum(figures.histogram) == 0:
        return
    plain = min(at.plain_forward_ms + at.overhead_ms, at.step_ms)
    for width in range(2, at.width):
        length = cut(figures.histogram, width)
        scaled = plain + (at.step_ms - plain) * (width - 1) / (at.width - 1)
        ends = [length / at.accept_length * at.step_ms / step for step in (at.step_ms, scaled)]
        if max(ends) > 1:
            yield Gain(
                f"width {width} instead of {at.width}",
                Side.BOTH,
                f"accept length {at.accept_length:.2f} → {length:.2f}, step"
                f" {number(at.step_ms)} → {number(scaled)}–{number(at.step_ms)} ms",
                Range(min(ends), max(ends), Basis.MEASURED, "histogram; step flat to linear"),
                f"run this drafter at width {width}",
            )
