"""Counts and times that contradict each other void a cell, each with its reason."""

import pytest

from pipeline.judge.comparison import judge
from pipeline.record.record import Status
from tests.pipeline.synthetic import make_plain, make_record, make_response
from verify.base import Proof


def reasons(records):
    return {r.label: r.reason for r in judge(records) if r.status is Status.VOID}


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (make_response(committed=[3, 1], depth=(4, 3)), "3 draft tokens, 4 deep, at width 4"),
        (make_response(committed=[2, 1], tokens=(1, 2, 3)), "committed 3 tokens of the 2 after"),
        (
            make_response(committed=[5, 1], proposed=(4, 4), depth=(4, 4)),
            "committed 5 tokens with 4 draft",
        ),
        (
            make_response(committed=[3, 1], proposed=(1, 3), depth=(1, 3)),
            "committed 3 tokens with 1 draft",
        ),
        (make_response(committed=[0, 1]), "committed 0 tokens with 3 draft"),
        (make_response(committed=[2, 1], proposed=(3,)), "of 1 and 2 verify steps"),
        (make_response(committed=[], tokens=(5,)), "no verify step ran"),
        (make_response(committed=[2, 1], decode_ms=50.0), "is 0.88 of accept length"),
        (make_response(committed=[2, 1], decode_ms=40.0), "is 1.10 of accept length"),
        (
            make_response(committed=[2, 1], draft_ms=(1, 1), step_ms=(19.0, 19.0), decode_ms=38.0),
            "verify and draft time exceed the step's 19.00 ms",
        ),
    ],
)
def test_counts_and_times_that_contradict_each_other_void_the_cell(response, reason):
    (record,) = judge([make_record("ngram", "extend", [response])])
    assert record.status is Status.VOID
    assert reason in record.reason


def test_a_clock_within_three_percent_is_no_contradiction():
    response = make_response(committed=[2, 1], decode_ms=44.0 * 1.025)
    assert reasons([make_record("ngram", "extend", [response])]) == {}


def test_more_steps_than_the_engine_proves_void_the_cell():
    proof = Proof("none", 2, 0, "fp16", "static")
    record = make_record("ngram", "extend", [make_response(committed=[1, 1, 1])], proof=proof)
    assert reasons([record]) == {"ngram × extend": "the engine proves 2 verify steps of 3"}


def test_a_step_of_several_requests_counts_for_each_of_them():
    proof = Proof("none", 2, 0, "fp16", "static", running_requests=1.5)
    record = make_record("ngram", "extend", [make_response(committed=[1, 1, 1])], proof=proof)
    assert reasons([record]) == {}


def test_a_speed_up_beyond_the_accept_length_voids_the_cell_and_names_the_suspect():
    slowed = make_record("none", "extend", [make_plain(num_tokens=8, verify_ms=(59.0,) * 8)])
    drafted = make_record("ngram", "extend", [make_response(committed=[2, 2, 2, 2])])
    assert reasons([slowed, drafted]) == {
        "ngram × extend": "speed-up 5.45x exceeds accept length 2.00: none × extend was slowed"
        " while it ran, or plain decode with this verify backend is missing"
    }
