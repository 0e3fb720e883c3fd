"""The n-gram drafter."""

import pytest

from drafters.base import Context, Draft
from drafters.ngram import Ngram

TARGET = None  # never looked at: only tokens count


def propose(tokens, **settings) -> Draft:
    proposer = Ngram(**settings).start(TARGET)
    proposer.begin(Context(tokens, None))
    return proposer.propose(Context(tokens, None))


def test_a_chain_copies_what_followed_the_longest_match():
    assert propose([1, 2, 3, 7, 8, 9, 3, 5, 1, 2, 3], num_draft_tokens=3) == Draft.chain((7, 8, 9))


def test_the_latest_of_equal_matches_wins():
    assert propose([1, 2, 7, 1, 2, 8, 5, 1, 2], num_draft_tokens=1).tokens == (8,)


def test_two_earlier_matches_outvote_the_latest():
    tokens = [1, 2, 7, 4, 1, 2, 7, 5, 1, 2, 8, 6, 1, 2]
    assert propose(tokens, num_draft_tokens=1).tokens == (7,)


def test_a_match_that_reaches_the_end_goes_on_into_its_own_draft():
    assert propose([9, 1, 2, 1, 2], num_draft_tokens=6).tokens == (1, 2, 1, 2, 1, 2)


def test_without_a_match_nothing_is_proposed():
    assert propose([1, 2, 3, 4]) == Draft((), ())
    assert propose([1, 2, 3, 1], min_match=2) == Draft((), ())


def test_a_tree_holds_the_alternatives_below_one_token():
    draft = propose([1, 2, 7, 4, 1, 2, 8, 5, 1, 2], num_draft_tokens=4, breadth=2)
    assert set(zip(draft.parents, draft.tokens, strict=True)) >= {(-1, 8), (-1, 7)}
    siblings = list(zip(draft.parents, draft.tokens, strict=True))
    assert len(set(siblings)) == len(siblings), "siblings must differ"


@pytest.mark.parametrize("breadth", [1, 3])
def test_a_draft_is_never_longer_than_asked_for(breadth):
    tokens = [1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2] * 5
    for size in range(1, 9):
        assert len(propose(tokens, num_draft_tokens=size, breadth=breadth).tokens) <= size


def test_growing_the_index_step_by_step_proposes_what_a_fresh_one_does():
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 1, 4, 1, 5, 9] * 2
    grown = Ngram(breadth=2).start(TARGET)
    grown.begin(Context(tokens[:3], None))
    for length in range(3, len(tokens) + 1):
        fresh = Ngram(breadth=2).start(TARGET)
        context = Context(tokens[:length], None)
        fresh.begin(context)
        assert grown.propose(context) == fresh.propose(context)


def test_a_new_request_knows_nothing_of_the_last_one():
    proposer = Ngram().start(TARGET)
    proposer.begin(Context([1, 2, 3, 1, 2], None))
    proposer.propose(Context([1, 2, 3, 1, 2], None))
    proposer.begin(Context([1, 2], None))
    assert proposer.propose(Context([1, 2], None)) == Draft((), ())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_draft_tokens": 0}, "drafter.num_draft_tokens=0: must be 1 or more"),
        ({"breadth": -1}, "drafter.breadth=-1"),
        ({"max_match": 1, "min_match": 2}, "drafter.max_match=1 is below drafter.min_match=2"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Ngram(**settings)


def test_sglang_is_told_the_breadth_and_not_the_number_of_tokens():
    assert Ngram(num_draft_tokens=3).sglang_arguments() == {
        "speculative-algorithm": "NGRAM",
        "speculative-ngram-max-bfs-breadth": 1,
    }
