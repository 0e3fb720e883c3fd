"""A sweep's cells taken into parts, and the speed of cells that it did not run.

A verify step's time does not depend on who drafted, so the parts are measured apart: the verify
time by backend, width and class (a surface), the draft time by drafter, the host time by backend.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from pipeline.judge import Comparison
from pipeline.measure import Figures
from pipeline.record import CellRecord
from pipeline.roi.acceptance import reach
from pipeline.roi.projection.hold_out import Hidden
from pipeline.roi.projection.surface import FEWEST, Estimate, Point, Surface, fit
from pipeline.roi.ranges import Basis, Range

LOAD = ("parallelism.batch", "parallelism.tp", "target", "engine", "workload")
PAIRS = ((0, 1), (0, 2))  # a backend has its own width curve, and its own cost by class


@dataclass(frozen=True)
class Place:
    """A cell on one workload class, measured or not.

    Attributes:
        drafter: Name of the drafter.
        verify: Name of the verify backend.
        width: Rows of a verify step.
        category: The workload class.
        load: Batch, ranks, target, engine and workload, in one text.
    """

    drafter: str
    verify: str
    width: int
    category: str
    load: str

    @property
    def point(self) -> Point:
        """Its place on the surface of verify time."""
        levels = (self.verify, str(self.width), self.category, self.load)
        return Point(levels, (math.log(self.width),))


@dataclass(frozen=True)
class Cost:
    """A measured cell on one class: its place, figures and whether it decodes plainly."""

    place: Place
    figures: Figures
    is_baseline: bool


@dataclass(frozen=True)
class Projection:
    """The speed of a cell that was not run.

    Attributes:
        place: The cell.
        accept_length: From the same drafter elsewhere: same width, or cut or carried on to it.
        step_ms: Verify from the surface, draft and host from where they were measured.
        tok_s: Their ratio; the interval carries both.
    """

    place: Place
    accept_length: Range
    step_ms: Estimate
    tok_s: Estimate


def costs(comparisons: Sequence[Comparison]) -> list[Cost]:
    """Return every measured cell on every class that it has."""
    found = []
    for comparison in comparisons:
        records = {r.cell_id: r for r in comparison.records}
        for cell_id, measurement in comparison.measurements.items():
            for category, figures in measurement.classes.items():
                place = _place(records[cell_id], category)
                found.append(Cost(place, figures, measurement.is_baseline))
    return found


def _place(record: CellRecord, category: str) -> Place:
    """Return where a cell is."""
    load = " ".join(record.params.get(key, "?") for key in LOAD)
    return Place(record.params["drafter"], record.params["verify"], record.width, category, load)


def surface(found: Sequence[Cost]) -> Surface:
    """Fit the surface of verify time to the measured cells.

    Raises:
        ValueError: Too few cells.
    """
    return fit([c.place.point for c in found], [c.figures.verify_ms for c in found], PAIRS)


def project(found: Sequence[Cost], fitted: Surface, place: Place) -> Projection | None:
    """Predict one cell; None if its drafter was never measured on that class.

    `tok/s = accept length / step time`, for one request.
    """
    length = _accept_length(found, place)
    if length is None:
        return None
    step = _step_ms(found, fitted, place)
    away = math.hypot(math.log(step.high / step.low) / 2, math.log(length.high / length.low) / 2)
    speed, bounds = 1000 * length.middle / step.value, math.exp(away)
    return Projection(place, length, step, Estimate(speed, speed / bounds, speed * bounds))


def _step_ms(found: Sequence[Cost], fitted: Surface, place: Place) -> Estimate:
    """Return verify, draft and host time together."""
    verify = fitted.at(place.point)
    draft = _spread(
        (c.figures.draft_ms for c in found if c.place.drafter == place.drafter), verify.value
    )
    host = _spread(
        (
            c.figures.host_ms
            for c in found
            if c.place.verify == place.verify and c.is_baseline == (place.width == 1)
        ),
        verify.value,
    )
    return Estimate(*(map(sum, zip(verify, draft, host, strict=True))))


def _spread(times: Iterable[float], step: float) -> Estimate:
    """Return the mean of a small part with its least and most; host time may be a hair under 0."""
    values = [max(time, -0.02 * step) for time in times] or [0.0]
    return Estimate(fmean(values), min(values), max(values))


def _accept_length(found: Sequence[Cost], place: Place) -> Range | None:
    """Return the accept length of a drafter at a width, from where it was measured."""
    same = [
        c
        for c in found
        if (c.place.drafter, c.place.category) == (place.drafter, place.category)
        and c.place != place
    ]
    exact = [c for c in same if c.place.width == place.width]
    if exact:
        interval = exact[0].figures.accept_length
        low, high = (
            interval.value if math.isnan(end) else end for end in (interval.low, interval.high)
        )
        return Range(low, high, Basis.MEASURED, f"{place.drafter} × {exact[0].place.verify}")
    if not same:
        return None
    nearest = min(same, key=lambda c: abs(c.place.width - place.width))
    return reach(nearest.figures.histogram, place.width)


def missing(found: Sequence[Cost]) -> Iterator[Place]:
    """Yield what the grid of measured drafters and backends lacks, by class."""
    have = {c.place for c in found}
    arms = dict.fromkeys((c.place.drafter, c.place.width) for c in found)
    backends = dict.fromkeys((c.place.verify, c.place.load) for c in found)
    categories = dict.fromkeys((c.place.category, c.place.load) for c in found)
    for drafter, width in arms:
        for verify, load in backends:
            for category, of_load in categories:
                place = Place(drafter, verify, width, category, load)
                if load == of_load and place not in have:
                    yield place


def self_check(found: Sequence[Cost]) -> list[Hidden]:
    """Hide each cell with a drafter on all of its classes, and predict its speed from the rest.

    The error is that of tok/s. A cell whose drafter ran with no other backend cannot be predicted
    and is left out.
    """
    hidden = []
    places = [(c.place.drafter, c.place.verify, c.place.width, c.place.load) for c in found]
    for cell in dict.fromkeys(places):
        kept = [c for c, place in zip(found, places, strict=True) if place != cell]
        if len(kept) < FEWEST:
            continue
        fitted = surface(kept)
        for number, (cost, place) in enumerate(zip(found, places, strict=True)):
            if place == cell and not cost.is_baseline:
                projection = project(kept, fitted, cost.place)
                if projection:
                    speed = projection.tok_s
                    hidden.append(Hidden(number, cost.figures.tok_s.value, speed))
    return hidden
