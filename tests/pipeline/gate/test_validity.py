"""Why a cell is void: its label, its counts, its output; never its times."""

from dataclasses import replace

from pipeline.gate.validity import fault
from tests.pipeline.synthetic import make_plain, make_record, make_response


def test_times_that_contradict_each_other_are_noise_and_counts_that_do_are_not():
    stalled = make_record("none", "extend", [make_plain(decode_ms=900.0)])
    assert fault(stalled, "", [stalled]) == ""
    lost = make_record("ngram", "extend", [make_response(committed=(4, 2), tokens=(1, 2, 3))])
    assert "verify steps committed 6 tokens of the 2 after prefill" in fault(lost, "", [lost])


def test_a_contradicted_label_comes_first():
    record = make_record("none", "extend", [make_plain()])
    assert fault(record, "some steps were captured", [record]) == "some steps were captured"


def test_a_speculative_cell_must_say_what_plain_decoding_of_the_same_backend_says():
    plain = make_record("none", "extend", [make_plain()])
    other = make_record("ngram", "extend", [make_response(tokens=(100, 101, 7, 103))])
    assert "output token 2: 7 instead of 102" in fault(other, "", [plain, other])


def test_a_cell_that_takes_other_steps_when_it_is_repeated_is_void():
    first, second = make_response(committed=(2, 1)), make_response(committed=(1, 2))
    record = make_record("ngram", "extend", [first], [second])
    assert "does not repeat itself" in fault(record, "", [record])
    same = replace(record, repetitions=((first,), (first,)))
    assert fault(same, "", [same]) == ""
