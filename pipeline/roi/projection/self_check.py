"""How far off projections are: each measured cell hidden in turn and predicted from the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.roi.projection.costs import Cost
from pipeline.roi.projection.predict import curves, project
from pipeline.roi.projection.width_curve import Estimate


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
