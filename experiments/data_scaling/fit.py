"""Fit accept length against the number of samples, and say what more data would give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

DRAWS = 4000


class Point(NamedTuple):
    """One training.

    Attributes:
        samples: Samples learnt from.
        accept_length: On held-out prompts.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    samples: int
    accept_length: float
    low: float
    high: float


class Fit(NamedTuple):
    """Accept length = `at_reference` + `per_doubling` * log2(samples / reference).

    Attributes:
        at_reference: Accept length at the reference.
        per_doubling: What twice the data adds.
        low: Lower end of the 95 % interval of `per_doubling`.
        high: Upper end.
        worst: Largest distance of a point from the line: how far the line can be trusted.
    """

    at_reference: float
    per_doubling: float
    low: float
    high: float
    worst: float


def fit(points: list[Point], reference: int, seed: int = 0) -> Fit:
    """Fit a line in the logarithm of the samples, points weighted alike.

    The interval redraws every point from its own interval. Points share their held-out prompts, so
    that their errors are alike and differences are surer than this says: it is on the safe side.

    Raises:
        ValueError: There are fewer than three points.
    """
    if len(points) < 3:
        raise ValueError(f"{len(points)} points: a line needs three or more to be judged by")
    doublings = np.log2([point.samples / reference for point in points])
    values = np.array([point.accept_length for point in points])
    spread = np.array([(point.high - point.low) / (2 * 1.96) for point in points])
    design = np.stack([np.ones_like(doublings), doublings])
    solve = np.linalg.pinv(design.T)
    start, slope = solve @ values
    drawn = values + spread * np.random.default_rng(seed).normal(size=(DRAWS, len(points)))
    low, high = np.quantile((drawn @ solve.T)[:, 1], [0.025, 0.975])
    worst = np.abs(values - start - slope * doublings).max()
    return Fit(float(start), float(slope), float(low), float(high), float(worst))


def gain(found: Fit, first: int, last: int) -> tuple[float, float, float]:
    """Return what going from `first` to `last` samples adds, with its interval."""
    doublings = float(np.log2(last / first))
    return (
        found.per_doubling * doublings,
        found.low * doublings,
        found.high * doublings,
    )
