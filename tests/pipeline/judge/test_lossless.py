"""Greedy outputs against plain decode's, token by token."""

from dataclasses import replace

import pytest

from pipeline.judge.lossless import compare_outputs, tolerance
from tests.pipeline.synthetic import make_plain, make_record, make_response

TOKENS = (10, 11, 12, 13, 14, 15)


def plain(margin_at_3=2.0, **changes):
    margins = (2.0, 2.0, 2.0, margin_at_3, 2.0, 2.0)
    return make_record(
        "none", "extend", [make_plain(num_tokens=5, tokens=TOKENS, margins=margins, **changes)]
    )


def drafted(*outputs, **changes):
    responses = [[make_response(committed=[2, 3], tokens=tokens)] for tokens in outputs]
    return make_record("ngram", "extend", *responses, **changes)


def test_equal_tokens_are_lossless_however_many_steps_they_took():
    found = compare_outputs(drafted(TOKENS), plain())
    assert (found.num_compared, found.faults, found.reason) == (1, (), "")


def test_a_planted_wrong_token_is_found_where_it_is_and_convicts_the_cell():
    wrong = (10, 11, 12, 99, 14, 15)
    found = compare_outputs(drafted(TOKENS, wrong), plain(margin_at_3=0.5))
    assert found.reason == (
        "output differs from none × extend in 1 of 2 responses, first in prompt chat-0,"
        " repetition 1, output token 3: 99 instead of 13 (margin 0.5); a margin of at most"
        " 0.001 would explain it"
    )


def test_a_divergence_at_a_near_tie_is_explained_and_only_the_first_counts():
    other = (10, 11, 12, 99, 77, 78)
    found = compare_outputs(drafted(other), plain(margin_at_3=5e-4))
    assert [d.index for d in found.explained] == [3]
    assert found.reason == ""


def test_a_response_that_ends_early_or_late_is_a_divergence():
    early = compare_outputs(drafted(TOKENS[:4]), plain()).faults[0]
    assert (early.index, early.expected, early.got) == (4, 14, None)
    late = compare_outputs(drafted((*TOKENS, 16)), plain()).faults[0]
    assert (late.index, late.expected, late.got, late.margin) == (6, None, 16, None)


def test_without_a_baseline_the_repetitions_must_agree_with_each_other():
    assert compare_outputs(drafted(TOKENS, TOKENS), None).reason == ""
    assert "output differs from its first repetition in 1 of 1" in (
        compare_outputs(drafted(TOKENS, (10, 11, 12, 99, 14, 15)), None).reason
    )
    assert compare_outputs(drafted(TOKENS), None).num_compared == 0


def test_an_engine_without_margins_can_neither_be_convicted_nor_be_proven():
    record = plain()
    blind = replace(record, repetitions=((replace(record.repetitions[0][0], margins=()),),))
    found = compare_outputs(drafted((10, 11, 12, 99, 14, 15)), blind)
    assert [d.margin for d in found.unproven] == [None]
    assert (found.faults, found.reason) == ((), "")


def test_margins_that_end_before_the_answers_part_prove_nothing_of_what_follows():
    record = plain()
    (response,) = record.repetitions[0]
    short = replace(record, repetitions=((replace(response, margins=(2.0,) * 3),),))
    found = compare_outputs(drafted((10, 11, 12, 99, 14, 15), (10, 99, 12, 13, 14, 15)), short)
    assert [d.index for d in found.unproven] == [3]
    assert [d.index for d in found.faults] == [1]


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", 1e-3), ("float16", 0.03125), ("bfloat16", 0.25), ("fp4", 1e-3)],
)
def test_the_tolerance_follows_the_dtype_that_the_engine_resolved(dtype, expected):
    assert tolerance(drafted(TOKENS, settings={"dtype": dtype})) == expected


def test_a_bfloat16_engine_may_swap_tokens_that_a_float32_engine_may_not():
    other, margin = (10, 11, 12, 99, 14, 15), 0.125
    assert compare_outputs(drafted(other), plain(margin)).reason
    low = drafted(other, settings={"dtype": "bfloat16"})
    assert compare_outputs(low, plain(margin)).reason == ""


@pytest.mark.parametrize(("margin", "explained"), [(0.25, 1), (0.25001, 1), (0.3125, 0)])
def test_two_logits_that_round_towards_each_other_tie(margin, explained):
    low = drafted((10, 11, 12, 99, 14, 15), settings={"dtype": "bfloat16"})
    assert len(compare_outputs(low, plain(margin)).explained) == explained
