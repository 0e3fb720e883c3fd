"""Decide where the unit is a run: against recorded runs, and on a drift over the last runs.

Two runs of one version differ by more than the repetitions within each: another start, another
hour, another machine of the class. That difference, the *run effect*, does not shrink with more
repetitions or prompts, so the unit here is the run: one figure each, and the candidate is compared
with what a further run of the reference would show (a prediction interval).

- With six reference runs or more, their own spread says how large run effects are, and Student's
  t allows for so few; nothing is assumed but that run effects are about normal.
- With fewer, t would allow anything (at 1 % and three runs, a slow-down of 15 times the spread), so
  the size of a run effect is taken from the setting `run_noise`, or from the spread if that is
  larger. Such a gate's false-alarm rate is as true as that setting.

Either way the candidate's own run effect remains, so only larger slow-downs can be judged than side
by side: `judges` says from which size on.

Between one version and the next a loss of half a percent is under any gate's reach; over twenty
versions it is a tenth. `trend` therefore tests the last runs for slow drift, exactly
(Mann-Kendall): if nothing changes, every order of the runs' figures is equally likely, whatever the
noise between runs, so the number of pairs of runs of which the later is slower has a known law.
Runs that remember each other (a machine that is slow for a week) break that,
which is why ratios within a run belong here and not milliseconds.

Change-point packages were measured on the same series (`experiments/gate/trend.py`) and left out:
over quiet series of 20 runs Apache Otava alarms in 14 % at its p of 0.01; at 0.001 in 1 to 3 %, and
then finds a slow drift less often than this test does (a sudden step more often, but that is what
the gate is for). ruptures alarms in 7 to 11 % and has no error rate to set.

Sources: Mann 1945 (https://doi.org/10.2307/1907187); Sen 1968, the median of all
slopes (https://doi.org/10.1080/01621459.1968.10480934).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

import numpy as np

from pipeline.gate.decision.promise import Promise
from pipeline.gate.decision.sequential import MetricVerdict, Verdict
from pipeline.gate.decision.signed_rank import Floats

ENOUGH_RUNS = 6  # Student's t at 1 % of three metrics: 4.5 with six runs, 5.1 with five, 12 with 3
FEWEST_RUNS = 8  # then 5 % of drift through 1 % of noise is found three times of four
MEDIAN_NOISE = math.pi / 2  # variance of a median over that of a mean; a few are below it


@dataclass(frozen=True)
class RunFigure:
    """One run's figure of one metric.

    Attributes:
        value: Mean over prompts of the log of a ratio within the run, of which more is worse.
        noise: Its standard deviation from repetitions alone, on the log scale.
    """

    value: float
    noise: float

    def __post_init__(self) -> None:
        """Check that both are numbers: nothing that is compared with NaN is ever a regression.

        Raises:
            ValueError: One is not finite.
        """
        if not (math.isfinite(self.value) and math.isfinite(self.noise)):
            raise ValueError(f"a figure of {self.value} ± {self.noise} is not finite")


def run_figure(ratios: Sequence[Sequence[float]]) -> RunFigure:
    """Return a run's figure: over each prompt's repetitions the median, over prompts the mean.

    Args:
        ratios: By prompt, by repetition: positive ratios within the run, such as verify ms over
            the baseline cell's decode ms. The same prompts in each run that is compared. Of
            prompts that were repeated more often than others, the first repetitions count.

    Raises:
        ValueError: Less than two repetitions of a prompt, or a ratio that is not above zero.
    """
    fewest = min((len(repeated) for repeated in ratios), default=0)
    if fewest < 2:
        raise ValueError("gate: a figure needs prompts, each with at least 2 repetitions")
    table = np.array([repeated[:fewest] for repeated in ratios], dtype=np.float64)
    if not (np.isfinite(table) & (table > 0)).all():
        raise ValueError("gate: a ratio is not above 0; leave its prompt out of every run")
    logs = np.log(table)
    noise = MEDIAN_NOISE * logs.var(axis=1, ddof=1).sum() / fewest / len(logs) ** 2
    return RunFigure(float(np.median(logs, axis=1).mean()), math.sqrt(noise))


def against_recorded(
    name: str,
    candidate: RunFigure,
    references: Sequence[RunFigure],
    metrics: int,
    promise: Promise,
    run_noise: float,
) -> MetricVerdict:
    """Decide on one metric of one run against runs recorded earlier.

    Args:
        name: The metric's name.
        candidate: The new run's figure.
        references: Figures of reference runs, one or more.
        metrics: Timed metrics of the gate, which share `promise.alpha`.
        promise: The declared error rates and sizes.
        run_noise: Standard deviation of a run effect, as a share; used under six references.

    Raises:
        ValueError: No reference, or a `run_noise` that is not above 0.
    """
    if not references:
        raise ValueError("gate: no reference run; record one with gate.record=true")
    if run_noise <= 0:
        raise ValueError(f"gate.run_noise={run_noise}: above 0, such as 0.03")
    spread = _spread(candidate, references, run_noise)
    freedom = len(references) - 1 if len(references) >= ENOUGH_RUNS else math.inf
    proof = quantile(1 - promise.alpha / metrics, freedom) * spread
    ruled_out = quantile(promise.power, freedom) * spread
    change = candidate.value - fmean(r.value for r in references)
    at_least, at_most = math.expm1(change - proof), math.expm1(change + ruled_out)
    verdict = Verdict.UNDECIDED
    if at_least > promise.tolerance:
        verdict = Verdict.REGRESSION
    elif at_most < promise.min_effect:
        verdict = Verdict.PASS
    judges = math.expm1(math.log1p(promise.tolerance) + proof + ruled_out)
    return MetricVerdict(
        name,
        verdict,
        rests_on=len(references),
        slow_down=math.expm1(change),
        at_least=at_least,
        at_most=at_most,
        judges=judges,
        candidate=math.exp(candidate.value),
        reference=math.exp(references[0].value),
        power=f"from {judges:.1%} on",
    )


def _spread(candidate: RunFigure, references: Sequence[RunFigure], run_noise: float) -> float:
    """Return the standard deviation of the candidate's figure less the references' mean."""
    number = len(references)
    recorded = fmean(r.noise**2 for r in references)
    observed = stdev(r.value for r in references) ** 2 if number > 1 else 0.0
    if number >= ENOUGH_RUNS:  # what was observed holds the repetitions' noise already
        return math.sqrt(observed * (1 + 1 / number) + max(0.0, candidate.noise**2 - recorded))
    effect = max(math.log1p(run_noise) ** 2, observed)
    return math.sqrt(effect * (1 + 1 / number) + candidate.noise**2 + recorded / number)


@lru_cache(maxsize=64)
def quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t; of the normal for infinite degrees of freedom."""
    from scipy.stats import t as student  # takes a second to import

    return float(student.ppf(probability, freedom))


@dataclass(frozen=True)
class Trend:
    """The drift of a figure over the last runs.

    Attributes:
        runs: Runs looked at.
        change: Growth of the figure from the first to the last of them, as a share: the median of
            the slopes between any two runs, times the distance.
        p: Probability of so steady a growth, or a steadier one, if nothing changes.
        drifts: `p` is at most `alpha`, and `change` is above the tolerance.
    """

    runs: int
    change: float
    p: float
    drifts: bool


def trend(figures: Sequence[float], alpha: float, tolerance: float = 0.0) -> Trend:
    """Test whether a figure grows steadily over runs.

    `alpha` is of one test. A window that slides along a history is tested again with every run and
    most of its runs are the same, so a history of many windows alarms more often than that.

    Args:
        figures: One positive figure per run, oldest first, of which more is worse, such as verify
            ms over decode ms.
        alpha: Most probability of a drift where nothing changes.
        tolerance: Growth over the window, as a share, up to which none is called a drift.

    Raises:
        ValueError: Fewer than 8 runs, or a figure that is not above zero.
    """
    if len(figures) < FEWEST_RUNS:
        raise ValueError(f"gate: {len(figures)} runs show no trend yet; {FEWEST_RUNS} at least")
    if not all(0 < figure < math.inf for figure in figures):
        raise ValueError(f"gate: a trend needs figures above 0, not {min(figures)}")
    logs = np.log(np.array(figures, dtype=np.float64))
    first, later = np.triu_indices(len(logs), 1)
    rises = logs[later] - logs[first]
    p = _chance(logs)
    slope = float(np.median(rises / (later - first)))
    change = math.expm1(slope * (len(logs) - 1))
    return Trend(len(logs), change, p, p <= alpha and change > tolerance)


def _chance(logs: Floats) -> float:
    """Return the probability of as many rises between any two runs, or more, in random order.

    Equal figures are no rise: of a tie the later run gets the lower rank.
    """
    from scipy.stats import kendalltau  # takes a second to import

    runs = np.arange(len(logs))
    ranks = np.empty(len(logs))
    ranks[np.lexsort((-runs, logs))] = runs
    return float(kendalltau(runs, ranks, method="exact", alternative="greater").pvalue)
