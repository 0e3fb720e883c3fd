"""Verdicts of a finished sweep: one per workload class, from what its cells measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures, Levers, Versus
from pipeline.measure.statistics import Interval
from pipeline.measure.wording import number
from pipeline.record.record import CellRecord
from pipeline.roi.levers.accept_length import cut
from pipeline.roi.levers.gain import Basis, Gain, Range, Side, known
from pipeline.roi.numbers import Numbers
from pipeline.roi.situation import Situation
from pipeline.roi.verdict import Verdict, weigh_levers

CAPTURED = 0.99  # share of replayed steps that counts as captured


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
        judged = _of_its_load(weigh_levers(at, Numbers({}, {}), extra), record.batch)
        found.append(
            ClassVerdict(category, names[cell_id], record, judged, versus.speed_up, versus.levers)
        )
    return found


def furthest(verdicts: Sequence[ClassVerdict]) -> ClassVerdict:
    """Return the class that is furthest from paying: the one whose next step comes first."""
    return min(verdicts, key=lambda found: found.speed_up.value)


def _of_its_load(verdict: Verdict, batch: int) -> Verdict:
    """Leave out levers of more load where the cell had some: public figures begin at batch 1."""
    if batch == 1:
        return verdict
    return replace(verdict, gains=tuple(g for g in verdict.gains if g.side is not Side.LOAD))


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
