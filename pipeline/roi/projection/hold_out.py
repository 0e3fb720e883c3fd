"""Hide cells, predict them from the rest, and say how far off that was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pipeline.roi.projection.surface import Estimate, Point, fit


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


def hold_out(
    points: Sequence[Point],
    costs: Sequence[float],
    groups: Sequence[object],
    pairs: Sequence[tuple[int, int]] = (),
) -> Iterator[Hidden]:
    """Hide one group of cells after the other, and yield each hidden cell's prediction.

    Args:
        points: The measured cells.
        costs: Their costs.
        groups: What is hidden together: the cell's own index, or a name shared by many.
        pairs: Factors that interact.
    """
    for group in dict.fromkeys(groups):
        kept = [i for i, name in enumerate(groups) if name != group]
        surface = fit([points[i] for i in kept], [costs[i] for i in kept], pairs)
        for i, name in enumerate(groups):
            if name == group:
                yield Hidden(i, costs[i], surface.at(points[i]))


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
