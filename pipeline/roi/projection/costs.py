"""A sweep's cells as costs: which rows a verify step ran, and what each part of the step took.

A captured step always runs its whole width; an eager one runs the rows that were drafted, which is
one where an n-gram found nothing, so its cost is told by the mean of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures
from pipeline.record.record import CellRecord

LOAD = ("parallelism.batch", "parallelism.tp", "target", "engine", "workload")
CAPTURED = 0.99  # share of replayed steps that counts as captured


@dataclass(frozen=True)
class Place:
    """A cell on one workload class, measured or not.

    Attributes:
        drafter: Name of the drafter.
        verify: Name of the verify backend.
        width: Rows of a verify step, at most.
        category: The workload class.
        load: Batch, ranks, target, engine and workload, in one text.
    """

    drafter: str
    verify: str
    width: int
    category: str
    load: str

    @property
    def cell(self) -> tuple[str, str, int, str]:
        """The cell over all of its classes."""
        return (self.drafter, self.verify, self.width, self.load)


@dataclass(frozen=True)
class Cost:
    """A measured cell on one class.

    Attributes:
        place: The cell.
        figures: Its figures on the class.
        is_baseline: It decodes plainly.
        drafted: Draft tokens proposed, a mean over steps.
        captured: Its steps were replayed from a capture.
    """

    place: Place
    figures: Figures
    is_baseline: bool
    drafted: float
    captured: bool

    @property
    def rows(self) -> float:
        """Rows that a verify step ran, a mean over steps."""
        return float(self.place.width) if self.captured else 1 + self.drafted


def costs(comparisons: Sequence[Comparison]) -> list[Cost]:
    """Return every measured cell on every class that it has.

    Times of a cell beside which the best baseline ran again are as the baseline first had them.
    """
    found = []
    for comparison in comparisons:
        records = {r.cell_id: r for r in comparison.records}
        best = comparison.best and comparison.measurements.get(comparison.best.cell_id)
        for cell_id, measurement in comparison.measurements.items():
            for category, figures in measurement.classes.items():
                if records[cell_id].control and best and category in best.classes:
                    figures = figures.rescaled_to(best.classes[category].plain_ms)
                found.append(_cost(records[cell_id], category, figures, comparison.exclude))
    return found


def _cost(record: CellRecord, category: str, figures: Figures, exclude: frozenset[str]) -> Cost:
    """Return one measured cell on one class."""
    load = " ".join(record.params.get(key, "?") for key in LOAD)
    place = Place(record.params["drafter"], record.params["verify"], record.width, category, load)
    proposed = [
        count
        for repetition in record.repetitions
        for response in repetition
        if response.category == category and response.prompt_id not in exclude
        for count in response.proposed
    ]
    captured = record.proof is not None and record.proof.graph_share > CAPTURED
    return Cost(place, figures, record.is_baseline, fmean(proposed), captured)
