"""Counts of two engines are compared over the tokens that both wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.engines_agree.__main__ import within
from pipeline.cell.response import Response, num_equal

RESPONSE = Response(
    prompt_id="p",
    category="chat",
    num_prompt_tokens=3,
    tokens=(9, 1, 2, 3, 4, 5),
    margins=(),
    committed=(2, 1, 2),
    proposed=(3, 3, 3),
    depth=(3, 3, 3),
    verify_ms=(1.0, 1.0, 1.0),
    draft_ms=(1.0, 1.0, 1.0),
    step_ms=(2.0, 2.0, 2.0),
    prefill_ms=1.0,
    decode_ms=6.0,
    finish="length",
    others_cpu=0.0,
)


@pytest.mark.parametrize(("shared", "found"), [(6, (3, 5)), (5, (2, 3)), (4, (2, 3)), (2, (0, 0))])
def test_a_step_counts_if_all_that_it_committed_is_shared(shared, found):
    assert within(RESPONSE, shared) == found


def test_responses_share_what_stands_before_their_first_difference():
    other = replace(RESPONSE, tokens=(9, 1, 7, 3, 4, 5))
    assert num_equal(RESPONSE.tokens, other.tokens) == 2
    assert num_equal(RESPONSE.tokens, RESPONSE.tokens[:4]) == 4
