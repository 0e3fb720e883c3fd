"""The speed of a cell that was not run, from parts that were measured, and how far off that is.

A verify step's time does not depend on who drafted, so the parts are measured apart: the verify
time of each backend by rows and class, the draft time by drafter and backend, the host time by
backend. The check hides each measured cell in turn and predicts it from the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import NamedTuple

import numpy as np

from pipeline.measure.wording import grouped
from pipeline.roi.levers.accept_length import reach
from pipeline.roi.projection.costs import (
    Cost,
    Estimate,
    Place,
    Timed,
    WidthCurve,
    width_curve,
)


@dataclass(frozen=True)
class Projection:
    """The speed of a cell that was not run.

    Attributes:
        place: The cell.
        accept_length: From the same drafter elsewhere: same width, or cut or carried on to it.
        step_ms: Verify from its backend's curve, draft and host from where they were measured.
        tok_s: Their ratio; the interval carries both.
    """

    place: Place
    accept_length: Estimate
    step_ms: Estimate
    tok_s: Estimate


def curves(found: Sequence[Cost]) -> dict[str, WidthCurve]:
    """Return each backend's verify time by rows."""
    timed = grouped(
        (c.place.verify, Timed(c.rows, c.place.category, c.figures.verify_ms)) for c in found
    )
    return {verify: width_curve(cells) for verify, cells in timed.items()}


def project(
    found: Sequence[Cost], fitted: Mapping[str, WidthCurve], place: Place
) -> Projection | None:
    """Predict one cell; None if its drafter was not measured on that class, or its backend.

    `tok/s = accept length / step time`, for one request.
    """
    same = [
        c
        for c in found
        if (c.place.drafter, c.place.category) == (place.drafter, place.category)
        and c.place != place
    ]
    if not same or place.verify not in fitted:
        return None
    nearest = min(same, key=lambda c: abs(c.place.width - place.width))
    length = _accept_length(nearest, place.width)
    step = _step_ms(found, fitted, place, nearest)
    away = math.hypot(math.log(step.high / step.low) / 2, math.log(length.high / length.low) / 2)
    speed, bounds = 1000 * length.value / step.value, math.exp(away)
    return Projection(place, length, step, Estimate(speed, speed / bounds, speed * bounds))


def _step_ms(
    found: Sequence[Cost], fitted: Mapping[str, WidthCurve], place: Place, nearest: Cost
) -> Estimate:
    """Return verify, draft and host time together."""
    captured = any(c.captured for c in found if c.place.verify == place.verify)
    rows = place.width if captured else 1 + min(nearest.drafted, place.width - 1)
    verify = _verify_ms(fitted, place, rows)
    hosts = (
        c.figures.host_ms
        for c in found
        if c.place.verify == place.verify and c.is_baseline == (place.width == 1)
    )
    draft = _spread(_draft_times(found, place), verify.value)
    host = _spread(hosts, verify.value)
    return Estimate(*map(sum, zip(verify, draft, host, strict=True)))


def _verify_ms(fitted: Mapping[str, WidthCurve], place: Place, rows: float) -> Estimate:
    """Return the verify time at some rows.

    A backend that ran at one number of rows tells nothing of others: it is taken to grow as the
    other backends do, between not at all and twice as much.
    """
    own = fitted[place.verify].at(rows, place.category)
    others = [curve for curve in fitted.values() if len(curve.nodes) > 1]
    known = fitted[place.verify].nodes
    if len(known) > 1 or not others:
        return own
    grown = fmean(
        c.at(rows, place.category).value / c.at(known[0][0], place.category).value for c in others
    )
    low, high = sorted((own.low, own.high * grown**2))
    return Estimate(own.value * grown, low, high)


def _draft_times(found: Sequence[Cost], place: Place) -> list[float]:
    """Return what a drafter takes for a step beside a backend, from each cell that tells it.

    A drafter is captured where verify is, so its time belongs to the backend too. Where it did not
    run beside this one, it is taken to change as the drafter that is most like it does.
    """
    own = [c for c in found if c.place.drafter == place.drafter]
    beside = [c.figures.draft_ms for c in own if c.place.verify == place.verify]
    return beside or [c.figures.draft_ms * _change(found, c, place.verify) for c in own]


def _change(found: Sequence[Cost], cell: Cost, verify: str) -> float:
    """Return how the draft time of the drafter most like a cell's changes with the backend."""
    there = {
        (c.place.drafter, c.place.category): c.figures.draft_ms
        for c in found
        if c.place.verify == verify
    }
    changes = [
        (abs(math.log(c.figures.draft_ms / cell.figures.draft_ms)), there[key] / c.figures.draft_ms)
        for c in found
        if c.place.verify == cell.place.verify
        and (key := (c.place.drafter, c.place.category)) in there
        and min(c.figures.draft_ms, cell.figures.draft_ms) > 0
    ]
    return min(changes)[1] if changes else 1.0


def _spread(times: Iterable[float], step: float) -> Estimate:
    """Return the mean of a small part with its least and most; host time may be a hair under 0."""
    values = [max(time, -0.02 * step) for time in times] or [0.0]
    return Estimate(fmean(values), min(values), max(values))


def _accept_length(nearest: Cost, width: int) -> Estimate:
    """Return the accept length of a drafter at a width, from the nearest width it ran at."""
    if nearest.place.width != width:
        found = reach(nearest.figures.histogram, width)
        return Estimate(found.middle, found.low, found.high)
    value, low, high = nearest.figures.accept_length
    return Estimate(value, *((value, value) if math.isnan(low) else (low, high)))


def missing(found: Sequence[Cost]) -> Iterator[Place]:
    """Yield what the grid of measured drafters and backends lacks, by class."""
    have = {c.place for c in found}
    arms = dict.fromkeys((c.place.drafter, c.place.width) for c in found)
    backends = dict.fromkeys((c.place.verify, c.place.load) for c in found)
    categories = dict.fromkeys((c.place.category, c.place.load) for c in found)
    for (drafter, width), (verify, load), (category, of_load) in product(
        arms, backends, categories
    ):
        place = Place(drafter, verify, width, category, load)
        if load == of_load and place not in have:
            yield place


class Hidden(NamedTuple):
    """One hidden cell.

    Attributes:
        place: Its place among the cells.
        cost: What was measured.
        estimate: What the other cells predict.
    """

    place: int
    cost: float
    estimate: Estimate

    @property
    def error(self) -> float:
        """Relative error of a speed built on the predicted cost: `measured / predicted - 1`."""
        return self.cost / self.estimate.value - 1


class Errors(NamedTuple):
    """How far off predictions are, as shares.

    Attributes:
        number: Hidden cells.
        median: Median absolute error.
        p90: 90th percentile.
        worst: The largest.
        covered: Share of the measured costs inside their predicted 95 % interval.
    """

    number: int
    median: float
    p90: float
    worst: float
    covered: float


def summarise(hidden: Sequence[Hidden]) -> Errors:
    """Return how far off the predictions were."""
    sizes = np.abs([h.error for h in hidden])
    inside = [h.estimate.low <= h.cost <= h.estimate.high for h in hidden]
    return Errors(
        len(hidden),
        float(np.median(sizes)),
        float(np.quantile(sizes, 0.9)),
        float(sizes.max()),
        float(np.mean(inside)),
    )


def self_check(found: Sequence[Cost]) -> list[Hidden]:
    """Hide each cell with a drafter on all of its classes, and predict its speed from the rest.

    The error is that of tok/s. A cell whose drafter or backend ran nowhere else cannot be
    predicted and is left out.
    """
    hidden = []
    for cell in dict.fromkeys(c.place.cell for c in found if not c.is_baseline):
        kept = [c for c in found if c.place.cell != cell]
        fitted = curves(kept)
        for number, cost in enumerate(found):
            if cost.place.cell == cell:
                projection = project(kept, fitted, cost.place)
                if projection:
                    hidden.append(Hidden(number, cost.figures.tok_s.value, projection.tok_s))
    return hidden
