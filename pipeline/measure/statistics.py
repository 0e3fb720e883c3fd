"""Intervals and the stop rule: what is resampled, what is held fixed, and when to stop repeating.

Two different questions, two intervals:

- *Reported* intervals say how far a figure would move with other prompts of the same classes. The
  unit is the prompt: its repetitions are pooled, prompts are resampled with replacement inside
  their class (`bootstrap`). A speed-up resamples the same prompts in both cells.
- The *stop rule* asks whether repeating the same prompts once more would still pay. Repeating can
  only shrink timing noise, never the variation between prompts, so its interval holds the prompts
  fixed: the unit is the repetition of the whole workload (`half_width`).

A handful of prompts per class is normal, and there plain percentiles cover far less than they claim
(77 % instead of 95 % at four prompts), so they are stretched about the figure. Hesterberg 2015,
"What Teachers Should Know About the Bootstrap" (https://arxiv.org/abs/1411.5279), gives the reason
and moves the percentiles instead, which cannot leave the range of so few prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import fmean, stdev
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.cell.response import Response

LEVEL = 0.95
RESAMPLES = 4000
Floats: TypeAlias = NDArray[np.float64]


class Interval(NamedTuple):
    """A figure with its 95 % interval; `low` and `high` are NaN where none can be given."""

    value: float
    low: float
    high: float


def bootstrap(statistic: Callable[[Floats], Floats], strata: Sequence[str]) -> Interval:
    """Return a positive statistic's percentile interval over prompts, resampled in their class.

    Both ends are stretched about the figure, on a log scale, by what Student's t and the lost
    degrees of freedom add to the normal. The resamples depend on `strata` alone, so a figure of
    two cells is paired by computing both inside `statistic`.

    Args:
        statistic: Maps weights [B, P], how often each prompt is in a resample, to [B] values.
        strata: The class of each of the P prompts.

    Returns:
        The statistic of all prompts, once each, and its interval; without degrees of freedom (no
        class has two prompts) the interval is NaN.
    """
    value = float(statistic(np.ones((1, len(strata))))[0])
    freedom = len(strata) - len(set(strata))
    if freedom < 1:
        return Interval(value, math.nan, math.nan)
    stretch = student(freedom) / student(10**6) * math.sqrt(len(strata) / freedom)
    ends = np.quantile(statistic(_weights(tuple(strata))), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = (value * (float(end) / value) ** stretch for end in ends)
    return Interval(value, low, high)


@lru_cache(maxsize=16)  # the classes of one workload, and all of them: a megabyte a class
def _weights(strata: tuple[str, ...]) -> Floats:
    """Return [B, P] counts: each class drawn with replacement as often as it has prompts."""
    generator = np.random.default_rng(0)
    weights = np.zeros((RESAMPLES, len(strata)))
    for stratum in sorted(set(strata)):
        members = [i for i, name in enumerate(strata) if name == stratum]
        share = [1 / len(members)] * len(members)
        weights[:, members] = generator.multinomial(len(members), share, size=RESAMPLES)
    return weights


@lru_cache
def student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t.

    Args:
        freedom: Degrees of freedom, at least 1.
    """
    from scipy.special import stdtrit  # 0.2 s, which only a process that gives intervals pays

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


def half_width(repetitions: Sequence[Sequence[Response]]) -> float:
    """Return the relative half-width of tok/s from repetition noise alone, prompts held fixed.

    Each repetition of the whole workload gives one tok/s; this is Student's 95 % interval of
    their mean, over the mean. Noise that hits a whole repetition (another process, a clock that
    drops) counts in full, which pooling the prompts' own spreads would hide. NaN for fewer than
    two repetitions.
    """
    if len(repetitions) < 2:
        return math.nan
    rates = _rates(repetitions)
    return student(len(rates) - 1) * standard_error(rates) / fmean(rates)


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean of equally noisy values; NaN of a single one."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def noise(repetitions: Sequence[Sequence[Response]]) -> str:
    """Write the scatter of tok/s over repetitions, "" where there is only one.

    Of two, Student's interval is too wide to be of use: their difference is written.
    """
    if len(repetitions) < 2:
        return ""
    if len(repetitions) == 2:
        return f"2 repetitions {100 * scatter(repetitions):.1f} % apart"
    return f"±{100 * scatter(repetitions):.1f} %"


def scatter(repetitions: Sequence[Sequence[Response]]) -> float:
    """Return how far repetitions leave tok/s unknown, as a share of it.

    That is how far two are apart, of more their interval's half-width; NaN for fewer than two.
    """
    if len(repetitions) != 2:
        return half_width(repetitions)
    rates = _rates(repetitions)
    return abs(rates[0] - rates[1]) / fmean(rates)


def _rates(repetitions: Sequence[Sequence[Response]]) -> list[float]:
    """Return the tokens per ms of each repetition of the whole workload."""
    return [
        sum(sum(r.committed) for r in responses) / sum(r.decode_ms for r in responses)
        for responses in repetitions
    ]
