"""The power that a gate reports is the power that it has."""

import math

import numpy as np
import pytest

from pipeline.gate.decision.promise import Promise, gate_stops, plan_rounds, power_of

PLAN = plan_rounds(prompts=12, max_rounds=4, metrics=2, promise=Promise())


def noise(spread, shape, seed=0):
    """Return heavy-tailed log ratios."""
    return spread * np.random.default_rng(seed).standard_t(3, shape)


def test_reported_power_is_the_share_of_fresh_runs_that_find_the_smallest_effect():
    # Told from 48 pairs, averaged over 20 gates; each lies a few points off, their mean does not.
    told = np.mean([power_of(noise(0.03, 48, seed).tolist(), PLAN).found for seed in range(20)])
    fresh = math.log1p(PLAN.promise.min_effect) + noise(0.03, (2000, 1, PLAN.pairs), 99)
    _, found = gate_stops(fresh, PLAN)
    assert 0.3 < found.mean() < 0.9
    assert told == pytest.approx(found.mean(), abs=0.07)


def test_power_falls_and_needed_pairs_grow_with_the_noise():
    found = [power_of(noise(spread, 48).tolist(), PLAN) for spread in (0.005, 0.03, 0.06)]
    assert found[0].found > 0.95 > found[1].found > found[2].found
    assert found[0].pairs_needed < PLAN.pairs < found[1].pairs_needed < found[2].pairs_needed


def test_the_pairs_that_it_asks_for_are_enough():
    needed = power_of(noise(0.03, 480).tolist(), PLAN).pairs_needed
    longer = plan_rounds(12, int(needed) // 12, 2, PLAN.promise)
    fresh = math.log1p(0.03) + noise(0.03, (1000, 1, longer.pairs), 98)
    _, found = gate_stops(fresh, longer)
    assert found.mean() > 0.9


def test_hopeless_noise_asks_for_no_number_of_pairs():
    found = power_of(noise(1.0, 48).tolist(), PLAN)
    assert found.found < 0.05
    assert found.pairs_needed == math.inf


def test_the_slow_down_itself_is_no_noise():
    still = power_of(noise(0.02, 48).tolist(), PLAN)
    slowed = power_of((noise(0.02, 48) + 0.5).tolist(), PLAN)
    assert slowed.found == pytest.approx(still.found, abs=0.02)


def test_less_than_a_block_says_nothing_of_power():
    with pytest.raises(ValueError, match="11 pairs say nothing of power; 12 at least"):
        power_of([0.0] * 11, PLAN)
