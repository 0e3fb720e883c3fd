"""Test a figure of the last runs for slow drift: exactly (Mann-Kendall), and with its size.

Between one version and the next a loss of half a percent is under any gate's reach; over twenty
versions it is a tenth. If nothing changes, every order of the runs' figures is equally likely,
whatever the noise between runs, so the number of pairs of runs of which the later is slower has an
exactly known law. Runs that remember each other (a machine that is slow for a week) break that,
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

import numpy as np

from pipeline.gate.decision.signed_rank import Floats

FEWEST_RUNS = 8  # then 5 % of drift through 1 % of noise is found three times of four


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
