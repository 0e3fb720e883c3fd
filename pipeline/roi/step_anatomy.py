"""A speculative step taken apart, by the sweep's own cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipeline.judge.comparison import Comparison
from pipeline.measure import Measurement
from pipeline.record.record import CellRecord
from pipeline.roi.plan.parts import LEAST, Part, exchanges, inside, rest
from verify.breakdown import Breakdown


@dataclass(frozen=True)
class Anatomy:
    """A step taken apart.

    Attributes:
        record: The cell whose step it is: the dearest backend of the drafter that serves best.
        measurement: Its figures.
        scaled: Whether other cells are of other turns, their times scaled by the baseline's there.
        parts: What can go, in the order of the cells that show it, then the bounds by size.
        floor_ms: What stays: a plain forward of the cheapest backend.
        accept_length: Tokens committed per step.
        ms_per_token: Wall time of a token of plain decoding at its best, in the cell's own turns.
    """

    record: CellRecord
    measurement: Measurement
    scaled: bool
    parts: tuple[Part, ...]
    floor_ms: float
    accept_length: float
    ms_per_token: float

    @property
    def step_ms(self) -> float:
        """The whole step."""
        return self.measurement.overall.step_ms


def anatomy(
    comparison: Comparison, breakdowns: Mapping[str, Breakdown] | None = None
) -> Anatomy | None:
    """Take apart the step of the drafter that serves best; None without baseline or drafter.

    Args:
        comparison: The judged cells.
        breakdowns: What is known of the inside of verify_ms, by cell id. Where the sweep has a
            cheaper backend, the difference to it is told, and the breakdown says what that is.
    """
    records = {r.cell_id: r for r in comparison.records}
    cells = [
        (records[key], m)
        for key, m in comparison.measurements.items()
        if not m.is_baseline and m.overall.versus
    ]
    if not cells or comparison.best is None:
        return None
    best, _ = max(cells, key=lambda cell: cell[1].overall.speed_up)
    chain = _chain(cells, best)
    record, measurement = chain[0]
    plain_ms = measurement.overall.plain_ms
    chain = [(r, _beside(m, plain_ms)) for r, m in chain]
    plain = [_beside(m, plain_ms) for m in comparison.measurements.values() if m.is_baseline]
    floor = min(m.overall.verify_ms for m in plain)
    known = {
        r.cell_id: breakdowns[r.cell_id].unslowed(m.overall.verify_ms)
        for r, m in chain
        if breakdowns and r.cell_id in breakdowns
    }
    if record.cell_id in known and len(chain) == 1:
        shown = list(inside(known[record.cell_id]))
        rows = measurement.overall.verify_ms - sum(p.ms for p in shown) - floor
        parts = [*shown, *rest(measurement, rows)]
    else:
        cheapest = chain[-1][1]
        parts = [*exchanges(chain, known), *rest(cheapest, cheapest.overall.verify_ms - floor)]
    least = LEAST * measurement.overall.step_ms
    return Anatomy(
        record,
        measurement,
        any(r.control for r, _ in chain),
        tuple(p for p in parts if p.ms > least),
        floor,
        measurement.overall.accept_length.value,
        plain_ms,
    )


def _beside(measurement: Measurement, plain_ms: float) -> Measurement:
    """Return a cell with its step as in turns in which a plain token took `plain_ms`."""
    return replace(measurement, overall=measurement.overall.beside(plain_ms))


def _chain(
    cells: list[tuple[CellRecord, Measurement]], best: CellRecord
) -> list[tuple[CellRecord, Measurement]]:
    """Return the best drafter's cells from the dearest step to the cheapest."""
    same = [
        (r, m)
        for r, m in cells
        if (r.params["drafter"], r.width) == (best.params["drafter"], best.width)
    ]
    return sorted(same, key=lambda cell: -cell[1].overall.step_ms / cell[1].overall.plain_ms)
