"""Drift is found at the declared rate, whatever the noise, and its size is told."""

import math
from itertools import permutations

import numpy as np
import pytest

from pipeline.gate.decision.over_runs import trend


def series(number, runs, change=0.0, seed=0):
    """Return figures of many histories with noise of 2 % and heavy tails."""
    noise = 0.02 / math.sqrt(3) * np.random.default_rng(seed).standard_t(3, (number, runs))
    return np.exp(noise + math.log1p(change) * np.linspace(0, 1, runs)).tolist()


def test_p_is_the_share_of_all_orders_that_rise_as_often():
    figures = [1.0, 1.2, 1.1, 1.3, 1.25, 1.5, 1.4, 1.6]

    def rises(order):
        return sum(b > a for i, a in enumerate(order) for b in order[i + 1 :])

    at_least = sum(rises(order) >= rises(figures) for order in permutations(figures))
    assert trend(figures, 0.01).p == pytest.approx(at_least / math.factorial(8))


@pytest.mark.parametrize("runs", [8, 20])
def test_histories_without_change_alarm_no_more_often_than_alpha(runs):
    # 1,000 at 1 %: 10, give or take 3.1.
    assert sum(trend(figures, 0.01).drifts for figures in series(1000, runs)) <= 20


def test_a_slow_drift_of_eight_percent_is_found_and_sized():
    found = [trend(figures, 0.01) for figures in series(200, 20, change=0.08)]
    assert np.mean([t.drifts for t in found]) > 0.95
    assert np.median([t.change for t in found]) == pytest.approx(0.08, abs=0.01)


def test_growing_faster_is_no_alarm():
    assert not any(trend(figures, 0.01).drifts for figures in series(200, 20, change=-0.08))


def test_a_steady_drift_within_the_tolerance_is_no_alarm():
    figures = [1 + 0.0005 * run for run in range(20)]
    assert trend(figures, 0.01).drifts
    assert not trend(figures, 0.01, tolerance=0.01).drifts


def test_figures_that_stay_the_same_show_no_drift():
    found = trend([2.0] * 12, 0.01)
    assert (found.change, found.p, found.drifts) == (0.0, pytest.approx(1.0), False)


def test_too_few_runs_and_figures_without_a_logarithm_are_refused():
    with pytest.raises(ValueError, match="7 runs show no trend yet; 8 at least"):
        trend([1.0] * 7, 0.01)
    with pytest.raises(ValueError, match="figures above 0, not 0"):
        trend([1.0] * 7 + [0.0], 0.01)
