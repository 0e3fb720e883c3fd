"""A grid as costs: the rows and times of its measured cells, and a verify-time curve by backend.

A captured step always runs its whole width; an eager one runs the rows that were drafted, which is
one where an n-gram found nothing, so its cost is told by the mean of its rows. A forward costs what
it reads once plus what each row adds, so a curve is linear in rows between the widths that were
measured, and beyond them along the line through all of them. A class differs by its context alone,
by the same factor at every width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures
from pipeline.measure.wording import grouped
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


LEAST_NOISE = 0.01  # no two cells are known to agree better
BEYOND = 0.25  # share of what a line adds beyond its points that may be wrong, either way


@dataclass(frozen=True)
class Timed:
    """One cell's verify time on one class; `rows` is a mean over steps."""

    rows: float
    category: str
    ms: float


@dataclass(frozen=True)
class WidthCurve:
    """A backend's curve.

    Attributes:
        nodes: Rows and time of each measured number of rows, rising, classes evened out.
        line: Time at no rows and time of one more, by least squares over all of it.
        classes: What each class multiplies the time by; 1 for one that was not measured.
        noise: Relative scatter of the measured cells around the curve.
    """

    nodes: tuple[tuple[float, float], ...]
    line: tuple[float, float]
    classes: Mapping[str, float]
    noise: float

    def at(self, rows: float, category: str) -> Estimate:
        """Return the time at some rows on some class, with its 95 % interval."""
        factor = self.classes.get(category, 1.0)
        ms = self._ms(rows)
        nearest = min(self.nodes, key=lambda node: abs(node[0] - rows))[1]
        inside = self.nodes[0][0] <= rows <= self.nodes[-1][0]
        beyond = 0.0 if inside else BEYOND * abs(math.log(ms / nearest))
        bounds = math.exp(math.hypot(NORMAL_95 * self.noise, beyond))
        return Estimate(factor * ms, factor * ms / bounds, factor * ms * bounds)

    def _ms(self, rows: float) -> float:
        """Return the time of the evened-out curve."""
        known, times = zip(*self.nodes, strict=True)
        if known[0] <= rows <= known[-1]:
            return float(np.interp(rows, known, times))
        end = 0 if rows < known[0] else -1
        return float(max(times[end] + self.line[1] * (rows - known[end]), 0.25 * times[end]))


def width_curve(measured: Sequence[Timed]) -> WidthCurve:
    """Fit a backend's curve to at least one cell."""
    classes = _class_factors(measured)
    even = [(round(t.rows, 3), t.ms / classes[t.category]) for t in measured]
    nodes = tuple(sorted((rows, fmean(times)) for rows, times in grouped(even).items()))
    line = _line(even)
    if len(nodes) > 4:  # rows that differ a little by class: a line is truer than its points
        ends = (nodes[0][0], nodes[-1][0])
        nodes = tuple((rows, line[0] + line[1] * rows) for rows in ends)
    curve = WidthCurve(nodes, line, classes, LEAST_NOISE)
    scatter = [math.log(ms / curve._ms(rows)) for rows, ms in even]
    noise = max(float(np.std(scatter)), LEAST_NOISE)
    return WidthCurve(nodes, line, classes, noise)


def _class_factors(measured: Sequence[Timed]) -> dict[str, float]:
    """Return each class's factor, drawn towards 1 by as much as scatter could have made it.

    A common line in rows is fitted; a class's factor is its mean distance from it. The variance of
    those means that scatter within classes explains is taken out (empirical Bayes).
    """
    line = _line([(t.rows, t.ms) for t in measured])
    off = grouped(
        (t.category, math.log(t.ms / max(line[0] + line[1] * t.rows, 1e-9))) for t in measured
    )
    means = {name: fmean(values) for name, values in off.items()}
    middle, each = fmean(means.values()), len(measured) / len(off)
    within = fmean((v - means[name]) ** 2 for name, values in off.items() for v in values)
    explained = within / max(each - 1, 1)
    between = max(float(np.var(list(means.values()))) - explained, 0.0)
    trust = between / (between + explained) if between else 0.0
    return {name: math.exp(trust * (value - middle)) for name, value in means.items()}


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return intercept and slope with the least relative squared error; the slope is not negative.

    With one number of rows the time is taken as flat.
    """
    rows, times = (np.array(side) for side in zip(*points, strict=True))
    if np.ptp(rows) < 0.01:
        return float(times.mean()), 0.0
    design = np.stack([np.ones_like(rows), rows], axis=1) / times[:, None]
    intercept, slope = np.linalg.lstsq(design, np.ones_like(times), rcond=None)[0]
    if slope < 0 or intercept < 0:
        return float(times.mean()), 0.0
    return float(intercept), float(slope)


class Estimate(NamedTuple):
    """A predicted cost with its 95 % interval, in the cost's own unit."""

    value: float
    low: float
    high: float


NORMAL_95 = 1.96
