"""What a draft is."""

import pytest

from drafters.base import Draft


def test_a_chain_is_a_tree_without_branches():
    chain = Draft.chain([5, 6, 7])
    assert chain.parents == (-1, 0, 1)
    assert chain.is_chain
    assert chain.depths == (1, 2, 3)


def test_depths_follow_the_parents():
    assert Draft((5, 6, 7, 8), (-1, -1, 0, 2)).depths == (1, 1, 2, 3)


@pytest.mark.parametrize("parents", [(0,), (1, -1), (-2,)])
def test_a_parent_that_does_not_come_first_is_refused(parents):
    with pytest.raises(ValueError, match="parent must come before it"):
        Draft(tuple(range(len(parents))), parents)
