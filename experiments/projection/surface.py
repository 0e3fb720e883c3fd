"""A cost surface over cells: a cell's step time from the cells that share something with it.

The logarithm of a step's cost is a sum of effects, one per level of each factor (drafter, verify
backend, width, class, batch), one per pair of levels that are known to interact, and slopes along
measured quantities. Every effect is drawn from a normal distribution, so that an effect that few
cells tell is drawn towards none: a multilevel model, which is Gaussian regression with one term of
the covariance per effect. How strong pairs, slopes and noise are is what makes the measured cells
most likely.

Source: Gelman and Hill 2006, Data Analysis Using Regression and Multilevel Models, chapter 12;
Rasmussen and Williams 2006, chapters 2 and 5, https://gaussianprocess.org/gpml
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pipeline.measure.statistics import Floats
from pipeline.roi.projection.costs import NORMAL_95, Estimate

UNSEEN = 0.1  # variance of a pair of levels that no measured cell has, in main effects' variance
PAIRS, SLOPES, NOISE = (0.0, 0.03, 0.1, 0.3), (0.0, 0.1, 1.0, 3.0), (0.003, 0.01, 0.03, 0.1)
FEWEST = 3  # cells below which no likelihood can choose anything


class Point(NamedTuple):
    """One cell's place on the surface.

    Attributes:
        levels: The level of each factor, such as `("ngram", "extend", "4")`.
        numbers: The measured quantities with a slope, such as the logarithm of the width.
    """

    levels: tuple[str, ...]
    numbers: tuple[float, ...] = ()


class Strength(NamedTuple):
    """How strong each kind of effect is, in units of the main effects' variance."""

    pairs: float
    slopes: float
    noise: float


class Terms(NamedTuple):
    """The covariance of cells by kind of effect, each [L, R]."""

    mains: Floats
    pairs: Floats
    slopes: Floats

    def under(self, strength: Strength) -> Floats:
        """Return the whole covariance, noise left out."""
        return self.mains + strength.pairs * self.pairs + strength.slopes * self.slopes


@dataclass(frozen=True)
class Surface:
    """A fitted surface.

    Attributes:
        points: The measured cells.
        pairs: Indices of the factors that interact, two by two.
        strength: What the likelihood chose.
        mean: Mean of the log cost.
        weights: [N] solution of the covariance against the centred log costs.
        root: [N, N] Cholesky factor of the covariance.
        scale: Variance of a main effect.
        widen: What intervals are multiplied by so that they cover the measured cells, each
            predicted from the others, as often as they claim; at least 1.
    """

    points: tuple[Point, ...]
    pairs: tuple[tuple[int, int], ...]
    strength: Strength
    mean: float
    weights: Floats
    root: Floats
    scale: float
    widen: float

    def at(self, point: Point) -> Estimate:
        """Predict the cost of a cell that was not run."""
        shared = _terms([point], self.points, self.pairs).under(self.strength)[0]
        alone = _terms([point], [point], self.pairs).under(self.strength)[0, 0]
        own = float(alone) + self.strength.noise + UNSEEN * self._unseen(point)
        middle = self.mean + float(shared @ self.weights)
        explained = np.linalg.solve(self.root, shared)
        variance = max(self.scale * (own - float(explained @ explained)), 0.0)
        reach = NORMAL_95 * self.widen * math.sqrt(variance)
        return Estimate(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))

    def _unseen(self, point: Point) -> int:
        """Return how many of a cell's interacting levels were never measured together."""
        met = [{(p.levels[a], p.levels[b]) for p in self.points} for a, b in self.pairs]
        own = [(point.levels[a], point.levels[b]) for a, b in self.pairs]
        return sum(pair not in known for pair, known in zip(own, met, strict=True))


def fit(
    points: Sequence[Point], costs: Sequence[float], pairs: Sequence[tuple[int, int]] = ()
) -> Surface:
    """Fit a surface to measured cells.

    Args:
        points: At least three cells.
        costs: Their costs, such as step times; positive.
        pairs: Factors whose levels interact, by their place in `Point.levels`.

    Raises:
        ValueError: Too few cells, or a cost that is no cost.
    """
    if len(points) < FEWEST:
        raise ValueError(f"{len(points)} measured cells: a projection needs {FEWEST} or more")
    if min(costs) <= 0:
        raise ValueError(f"cost {min(costs)}: a step's cost must be more than 0")
    logs = np.log(np.asarray(costs, dtype=np.float64))
    centred = logs - logs.mean()
    terms = _terms(points, points, pairs)
    strengths = list(_strengths(bool(pairs), bool(points[0].numbers)))
    strength = max(strengths, key=lambda s: _evidence(_noisy(terms, s), centred))
    covariance = _noisy(terms, strength)
    weights = np.linalg.solve(covariance, centred)
    scale = max(float(centred @ weights) / len(points), 1e-12)
    return Surface(
        points=tuple(points),
        pairs=tuple(pairs),
        strength=strength,
        mean=float(logs.mean()),
        weights=weights,
        root=np.asarray(np.linalg.cholesky(covariance), dtype=np.float64),
        scale=scale,
        widen=_widen(covariance, weights, scale),
    )


def _strengths(pairs: bool, slopes: bool) -> Iterator[Strength]:
    """Yield the strengths to choose from, the simplest first."""
    for values in itertools.product(
        PAIRS if pairs else (0.0,), SLOPES if slopes else (0.0,), NOISE
    ):
        yield Strength(*values)


def _evidence(covariance: Floats, centred: Floats) -> float:
    """Return the log likelihood of the log costs, their overall variance at its best."""
    count = len(centred)
    root = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(root, centred)
    variance = max(float(whitened @ whitened) / count, 1e-12)
    return -count / 2 * math.log(variance) - float(np.log(np.diag(root)).sum())


def _widen(covariance: Floats, weights: Floats, scale: float) -> float:
    """Return how much too narrow the intervals are on the measured cells, left out one by one."""
    inverse = np.diag(np.linalg.inv(covariance))
    errors = np.abs(weights / inverse) / np.sqrt(scale / inverse)
    return max(float(np.quantile(errors, 0.95)) / NORMAL_95, 1.0)


def _noisy(terms: Terms, strength: Strength) -> Floats:
    """Return the covariance of the measured cells with their noise, [N, N]."""
    return terms.under(strength) + strength.noise * np.eye(len(terms.mains))


def _terms(
    left: Sequence[Point], right: Sequence[Point], pairs: Sequence[tuple[int, int]]
) -> Terms:
    """Return what left and right cells share: levels, pairs of levels, and slopes."""
    shape = (len(left), len(right))
    same = [
        np.equal.outer([p.levels[i] for p in left], [p.levels[i] for p in right])
        for i in range(len(right[0].levels))
    ]
    both = [same[one] & same[other] for one, other in pairs]
    ours, theirs = (np.array([p.numbers for p in side]) for side in (left, right))
    return Terms(
        np.sum(same, axis=0, dtype=np.float64),
        np.sum(both, axis=0, dtype=np.float64) if both else np.zeros(shape),
        ours @ theirs.T if ours.size else np.zeros(shape),
    )
