"""Predict a drafter on a benchmark where nothing but plain decoding ran, from its other benchmarks.

Published tok/s hold more than decode steps: prefill, and a batch that empties. Plain decoding has
the same of it, so that it cancels in the difference of the times per token:

    1 / tok_s - 1 / base = step / accept_length - plain step

A step's time depends on its shape, the plain step's on nothing here: one number each, found by
least squares over the relative errors of the target's other benchmarks. There is nothing to tune.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from experiments.projection.specbundle import Cell
from pipeline.measure.statistics import Floats
from pipeline.roi.projection.costs import Estimate
from pipeline.roi.projection.predict import Hidden

FEWEST = 3  # benchmarks to learn from: two would leave one to tell the error of another


def applies(hidden: Sequence[Cell], kept: Sequence[Cell]) -> bool:
    """Whether only plain decoding ran on the hidden cells' benchmark, and enough ran elsewhere."""
    place = hidden[0].bench
    known = {c.shape for c in kept}
    return (
        place not in {c.bench for c in kept}
        and len({c.bench for c in kept}) >= FEWEST
        and all(c.shape in known for c in hidden)
    )


def predict(hidden: Sequence[Cell], kept: Sequence[Cell]) -> Iterator[Estimate]:
    """Yield the time per token of each hidden cell, in seconds, with its 95 % interval.

    The interval is as wide as the errors on the kept benchmarks, each predicted from the others.

    Args:
        hidden: Cells of one benchmark, their accept length and baseline known.
        kept: The target's cells on other benchmarks.
    """
    errors: list[float] = []
    for bench in dict.fromkeys(c.bench for c in kept):
        left = [c for c in kept if c.bench != bench]
        own = [c for c in kept if c.bench == bench and c.shape in {k.shape for k in left}]
        errors += [abs(c.tok_s * t - 1) for c, t in zip(own, _times(own, left), strict=True)]
    reach = float(np.quantile(errors, 0.95))
    for time in _times(hidden, kept):
        yield Estimate(time, time / (1 + reach), time * (1 + reach))


def hold_out(cells: Sequence[Cell], place: Sequence[int]) -> Iterator[Hidden]:
    """Hide each benchmark of a target in turn; yields nothing for one that the law cannot tell.

    Args:
        cells: All cells of one target that count.
        place: Their places among the cells of the pool.
    """
    for bench in dict.fromkeys((c.draft, c.bench) for c in cells):
        own = [i for i, c in enumerate(cells) if (c.draft, c.bench) == bench]
        hidden = [cells[i] for i in own]
        kept = [c for c in cells if (c.draft, c.bench) != bench]
        if applies(hidden, kept):
            for i, estimate in zip(own, predict(hidden, kept), strict=True):
                yield Hidden(place[i], 1 / cells[i].tok_s, estimate)


def _times(wanted: Sequence[Cell], known: Sequence[Cell]) -> list[float]:
    """Return the predicted seconds per token of cells whose shapes are known."""
    shapes = list(dict.fromkeys(c.shape for c in known))

    def design(cells: Sequence[Cell]) -> Floats:
        rows = [[(c.shape == s) / c.accept_length for s in shapes] + [-1.0] for c in cells]
        return np.array(rows, dtype=np.float64)

    speeds = np.array([c.tok_s for c in known])
    differences = np.array([1 / c.tok_s - 1 / c.base for c in known])
    terms, *_ = np.linalg.lstsq(design(known) * speeds[:, None], differences * speeds, rcond=None)
    return [float(row @ terms) + 1 / c.base for row, c in zip(design(wanted), wanted, strict=True)]
