"""The exact test: its law is that of all coins, its error is spent and not exceeded."""

from itertools import product

import numpy as np
import pytest

from pipeline.gate.decision.signed_rank import block_sums, bounds, middle, shift_at

SIZES = np.array([0.3, 7.0, 1.1, 2.0, 0.9, 0.1, 40.0, 5.0])


def all_coins():
    """Return [256, 8]: eight sizes with every choice of signs."""
    return np.array(list(product([-1, 1], repeat=8))) * SIZES


@pytest.mark.parametrize("error", [0.02, 0.07, 0.2])
def test_of_all_choices_of_signs_no_more_than_the_error_ever_reach_a_bound(error):
    # Two blocks of four: the 256 choices are equally likely, so this is the whole truth.
    found = bounds(4, 2, error)
    reached = (block_sums(all_coins(), 4) >= found).any(axis=1).mean()
    lower = [found[0], found[1] - 1]
    assert reached <= error < (block_sums(all_coins(), 4) >= lower).any(axis=1).mean()


def test_the_error_is_spent_in_proportion_and_what_one_look_cannot_use_the_next_one_may():
    # One block of four has 16 choices: 1/16 is more than half of 0.12, so nothing proves at once.
    assert bounds(4, 2, 0.12)[0] == 11  # above 1 + 2 + 3 + 4
    first = (block_sums(all_coins(), 4)[:, 0] >= bounds(4, 2, 0.13)[0]).mean()
    assert first == 1 / 16 <= 0.13 / 2


def test_sums_are_of_the_ranks_within_each_block():
    values = np.array([-1.0, 2.0, 3.0, 9.0, -8.0, 7.0])
    assert block_sums(values, 3).tolist() == [2 + 3, 2 + 3 + 3 + 1]


def test_an_outlier_counts_as_the_largest_and_not_a_hundredfold():
    values = np.array([0.02, 0.03, -0.01, 0.04])
    wild = np.array([0.02, 0.03, -0.01, 4.0])
    assert block_sums(values, 4).tolist() == block_sums(wild, 4).tolist()


def test_zeros_and_ties_count_against_what_is_to_be_proven():
    assert block_sums(np.zeros(4), 4).tolist() == [0]
    assert block_sums(np.array([0.1, -0.1, 0.1, -0.1]), 4).tolist() == [1 + 2]


def test_a_limit_is_the_shift_at_which_proof_ends():
    values = np.random.default_rng(0).normal(0.05, 0.02, 24)
    bound = bounds(12, 2, 0.05)[1]
    limit = shift_at(values, 12, bound)
    assert block_sums(values - (limit - 1e-9), 12)[-1] >= bound
    assert block_sums(values - (limit + 1e-9), 12)[-1] < bound
    assert limit < middle(values, 12) < -shift_at(-values, 12, bound)


def test_too_few_pairs_limit_nothing():
    assert shift_at(np.array([1.0, 2.0]), 2, 4) == float("-inf")


def test_the_estimate_ignores_a_few_pairs_in_which_the_machine_changed_its_speed():
    values = np.random.default_rng(1).normal(0.05, 0.01, 24)
    values[[3, 9, 17]] += 0.7
    assert middle(values, 12) == pytest.approx(0.05, abs=0.01)
    assert values.mean() > 0.12
