"""Hide cells, predict them from the rest, and say how far off that was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.projection.surface import Point, fit
from pipeline.roi.projection.predict import Hidden


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
