"""Acceptance rules: greedy by hand-checked trees, rejection by the distribution it must keep."""

import pytest
import torch

from drafters.base import Draft
from pipeline.engine.torch.accept import Accepted, greedy, rejection

# A tree of four draft tokens:  root ─ 5 ─ 7 ─ 9
#                                    └ 6
TREE = Draft((5, 6, 7, 9), (-1, -1, 0, 2))


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ([5, 7, 0, 9, 3], Accepted((0, 2, 3), 3)),  # all the way down
        ([5, 7, 0, 8, 3], Accepted((0, 2), 8)),  # wrong at the leaf
        ([6, 7, 4, 9, 3], Accepted((1,), 4)),  # the other branch
        ([1, 7, 4, 9, 3], Accepted((), 1)),  # nothing
    ],
)
def test_greedy_follows_the_targets_first_choices(best, expected):
    assert greedy(TREE, torch.tensor(best)) == expected


def test_greedy_without_a_draft_commits_the_bonus_token():
    assert greedy(Draft((), ()), torch.tensor([4])) == Accepted((), 4)


VOCABULARY, TRIALS = 5, 8_000
# Each cell of the empirical distribution is a mean of TRIALS Bernoulli draws, whose standard
# deviation is at most 0.5 / sqrt(TRIALS) = 0.0056. Five of them, over some 30 cells looked at in
# all tests of this file, are passed by chance less than once in 50,000 runs.
TOLERANCE = 5 * 0.5 / TRIALS**0.5


def distribution(seed: int, rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(rows, VOCABULARY, generator=generator).pow(2).softmax(dim=-1)


def first_tokens(draft_of, target, seed) -> torch.Tensor:
    """How often each token is the first one committed."""
    generator = torch.Generator().manual_seed(seed)
    counts = torch.zeros(VOCABULARY)
    for _ in range(TRIALS):
        draft = draft_of(generator)
        accepted = rejection(draft, target, generator)
        counts[draft.tokens[accepted.path[0]] if accepted.path else accepted.bonus] += 1
    return counts / TRIALS


def drawn_chain(probs):
    def draw(generator):
        tokens = torch.multinomial(probs, 1, generator=generator).squeeze(1)
        return Draft.chain(tokens.tolist(), probs)

    return draw


def test_rejection_of_a_drawn_chain_keeps_the_targets_distribution():
    target, drafter = distribution(1, 3), distribution(2, 2)
    measured = first_tokens(drawn_chain(drafter), target, seed=3)
    assert (measured - target[0]).abs().max() < TOLERANCE


def test_rejection_of_tokens_chosen_outright_keeps_the_targets_distribution():
    target = distribution(4, 4)
    tree = Draft((0, 3, 1), (-1, -1, 0))
    measured = first_tokens(lambda _: tree, target, seed=5)
    assert (measured - target[0]).abs().max() < TOLERANCE


def test_rejection_of_siblings_drawn_independently_keeps_the_targets_distribution():
    target, row = distribution(6, 3), distribution(7, 1)
    probs = row.expand(2, -1)

    def draw(generator):
        tokens = torch.multinomial(probs, 1, generator=generator).squeeze(1).tolist()
        return Draft(tuple(tokens), (-1, -1), probs)

    measured = first_tokens(draw, target, seed=8)
    assert (measured - target[0]).abs().max() < TOLERANCE


def test_the_second_token_is_distributed_as_the_target_after_the_first():
    target, drafter = distribution(9, 3), distribution(10, 2)
    generator = torch.Generator().manual_seed(11)
    draw = drawn_chain(drafter)
    counts, total = torch.zeros(VOCABULARY), 0
    for _ in range(TRIALS):
        draft = draw(generator)
        accepted = rejection(draft, target, generator)
        if accepted.path:
            second = draft.tokens[1] if len(accepted.path) == 2 else accepted.bonus
            counts[second] += 1
            total += 1
    assert (counts / total - target[1]).abs().max() < TOLERANCE * (TRIALS / total) ** 0.5


def test_a_drafter_that_is_the_target_is_always_accepted():
    target = distribution(12, 3)
    generator = torch.Generator().manual_seed(13)
    draw = drawn_chain(target[:2])
    assert all(len(rejection(draw(generator), target, generator).path) == 2 for _ in range(200))
