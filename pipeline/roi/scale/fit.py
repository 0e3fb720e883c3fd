"""Coefficients of the cost model, fitted to measured steps; none may be negative."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.roi.public_figures import Curve
from pipeline.roi.scale.forward_cost import ScaleTarget
from pipeline.roi.scale.machines import Box
from pipeline.roi.scale.terms import Terms, Work, terms


class Step(NamedTuple):
    """One measured step.

    Attributes:
        work: What it did.
        ms: Its wall time.
    """

    work: Work
    ms: float


def fit(target: ScaleTarget, box: Box, curve: Curve, steps: Sequence[Step]) -> Terms:
    """Return the coefficients with the least relative squared error, none negative.

    Every subset of terms is tried, which is exact and cheap for six of them.

    Raises:
        ValueError: Fewer steps than terms.
    """
    width = len(Terms._fields)
    if len(steps) < width:
        raise ValueError(f"{len(steps)} measured steps: the cost model has {width} terms to fit")
    rows = np.array([terms(target, box, s.work, curve) for s in steps])
    rows = rows / np.array([s.ms for s in steps])[:, None]
    best, least = np.zeros(width), float(len(steps))
    for size in range(1, width + 1):
        for chosen in itertools.combinations(range(width), size):
            found = np.linalg.lstsq(rows[:, chosen], np.ones(len(steps)), rcond=None)[0]
            error = float(((rows[:, chosen] @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < least - 1e-12:
                best, least = np.zeros(width), error
                best[list(chosen)] = found
    return Terms(*map(float, best))


def cost(coefficients: Terms, found: Terms) -> float:
    """Return the ms of a captured step."""
    return sum(c * t for c, t in zip(coefficients, found, strict=True))
