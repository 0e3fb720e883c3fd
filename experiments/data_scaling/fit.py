"""Fit accept length against the number of samples, and say what more data would give.

A chain's accept length cannot grow for ever, and the measured one bends long before the chain's
end, so the curve is a power law with a ceiling, the usual form of a learning curve (Hestness et al.
2017, https://arxiv.org/abs/1712.00409).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

DRAWS = 4000
EXPONENTS = np.linspace(0.05, 1.5, 146)  # below, a curve is as good as a line in the logarithm
Floats: TypeAlias = NDArray[np.float64]


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
    """Accept length = `ceiling` - `distance` * (samples / reference) ** -`exponent`.

    Attributes:
        ceiling: What no amount of data would pass.
        distance: Of the accept length at the reference from the ceiling.
        worst: Largest distance of a point from the curve: how far the curve can be trusted.
    """

    ceiling: float
    distance: float
    exponent: float
    worst: float

    def at(self, share: float) -> float:
        """Return the accept length at `share` times the reference's samples."""
        return float(self.ceiling - self.distance * share**-self.exponent)


class Gain(NamedTuple):
    """What more data adds to the accept length, with its 95 % interval."""

    value: float
    low: float
    high: float


def fit(points: list[Point], reference: int) -> Fit:
    """Fit the curve, points weighted alike.

    Raises:
        ValueError: There are fewer than four points: three parameters would pass through them.
    """
    ceiling, distance, exponent = _solve(points, reference, _values(points)[None])[0]
    found = Fit(float(ceiling), float(distance), float(exponent), 0.0)
    off = [abs(found.at(point.samples / reference) - point.accept_length) for point in points]
    return found._replace(worst=max(off))


def gain(points: list[Point], first: int, last: int, seed: int = 0) -> Gain:
    """Return what going from `first` to `last` samples adds.

    The interval fits again with every point redrawn from its own interval. Points share their
    held-out prompts, so that their errors are alike and differences are surer than this says: it is
    on the safe side.
    """
    curve = fit(points, first)
    spread = np.array([(point.high - point.low) / (2 * 1.96) for point in points])
    noise = np.random.default_rng(seed).normal(size=(DRAWS, len(points)))
    _, distance, exponent = _solve(points, first, _values(points) + spread * noise).T
    low, high = np.quantile(distance * (1 - (last / first) ** -exponent), [0.025, 0.975])
    return Gain(curve.at(last / first) - curve.at(1), float(low), float(high))


def _values(points: list[Point]) -> Floats:
    return np.array([point.accept_length for point in points])


def _solve(points: list[Point], reference: int, values: Floats) -> Floats:
    """Return [D, 3], ceiling, distance and exponent of D series of values, [D, P].

    For a given exponent the others are linear; exponents are tried one by one.
    """
    if len(points) < 4:
        raise ValueError(f"{len(points)} points: a curve needs four or more to be judged by")
    shares = np.array([point.samples / reference for point in points])
    best = np.full(len(values), np.inf)
    found = np.zeros((len(values), 3))
    for exponent in EXPONENTS:
        design = np.stack([np.ones_like(shares), -(shares**-exponent)], axis=1)
        linear = values @ np.linalg.pinv(design).T
        errors = ((linear @ design.T - values) ** 2).sum(axis=1)
        better = errors < best
        best[better] = errors[better]
        found[better, :2], found[better, 2] = linear[better], exponent
    return found
