"""Exact things: where an answer, a step or a count began to be another one."""

from dataclasses import replace

import pytest

from pipeline.gate.arm import arm
from pipeline.gate.exact import Weight, exact_findings
from pipeline.gate.reference import dump, load, new_reference
from pipeline.gate.validity import differences
from tests.pipeline.synthetic import make_plain, make_record, make_response, make_sweep
from verify.base import Proof

TOKENS = (5, 6, 7, 8, 9, 10, 11)


def ngram(committed=(4, 2), **changes):
    response = make_response("copy-1", "copy", committed, tokens=TOKENS, **changes)
    other = make_response("chat-1", "chat", (1, 1))
    return arm(make_record("ngram", "graph_captured", [response, other]), "ngram")


def test_equal_arms_have_no_finding():
    assert exact_findings(ngram(), ngram(), str) == []


def test_a_changed_token_is_shown_as_text_with_the_margin_that_it_had():
    changed = replace(ngram(), answers=dict(ngram().answers))
    answer = changed.answers["copy-1"]
    changed.answers["copy-1"] = replace(answer, tokens=(5, 6, 7, 99, 9, 10, 11))
    (found,) = exact_findings(changed, ngram(), lambda token: {99: "oh", 8: "ah"}[token])
    assert (found.kind, found.prompt, found.position, found.fails) == ("output", "copy-1", 3, True)
    assert (
        found.text == "'oh' (99) instead of 'ah' (8); the reference's margin there was 2.5 logits"
    )


def test_an_answer_that_ends_early_is_found_at_its_end():
    changed = replace(ngram(), answers=dict(ngram().answers))
    answer = changed.answers["copy-1"]
    changed.answers["copy-1"] = replace(answer, tokens=TOKENS[:5])
    (found,) = exact_findings(changed, ngram(), str)
    assert found.position == 5
    assert found.text.startswith("the end instead of '10' (10)")


def test_acceptance_is_judged_over_the_prompts_whose_output_is_the_same():
    found = exact_findings(ngram((3, 2, 1)), ngram((4, 2)), str)
    assert [(f.kind, f.weight) for f in found] == [
        ("acceptance", Weight.WORSE),
        ("steps", Weight.WORSE),
    ]
    assert found[0].text.startswith("accept length 2.0000 → 1.6000 (-20.00%); accepted by draft")
    assert "1: " in found[0].text
    assert (found[1].prompt, found[1].position) == ("copy-1", 1)


def test_as_many_steps_in_other_places_are_a_change_that_fails():
    (found,) = exact_findings(ngram((2, 4)), ngram((4, 2)), str)
    assert (found.weight, found.fails) == (Weight.CHANGED, True)


def test_a_lost_graph_and_more_all_reduces_are_worse_and_fewer_are_better():
    proof = Proof("cuda_graph", 100, 100, "x", "x", "nccl", 65.0)
    was = replace(ngram(), proof=proof)
    now = replace(was, proof=replace(proof, num_captured_steps=90, allreduces_per_step=66.0))
    worse = exact_findings(now, was, str)
    assert [f.text for f in worse] == [
        "share of steps replayed from a graph 1 → 0.9",
        "all-reduces a step 65 → 66",
    ]
    assert all(f.fails for f in worse)
    assert not any(f.fails for f in exact_findings(was, now, str))


def test_a_void_candidate_is_a_finding_and_a_void_reference_a_difference():
    void = replace(ngram(), fault="no verify step ran")
    assert [f.kind for f in exact_findings(void, ngram(), str)] == ["void"]
    assert differences([void], [ngram()], recorded=False) == []
    assert differences([ngram()], [void], recorded=False) == [
        "ngram: the reference is void: no verify step ran"
    ]


def test_every_difference_is_listed_and_versions_count_only_for_what_was_recorded():
    ours = arm(make_record("none", "extend", [make_plain()], settings={"torch": "2.14"}), "none")
    other = arm(make_record("ngram", "extend", [make_response()]), "ngram")
    theirs = replace(
        ours,
        settings={"torch": "2.13", "captured_batches": "1,2", "dtype": "bfloat16"},
        params=ours.params | {"prompts_digest": "p", "sampling.seed": "1"},
    )
    ours = replace(ours, params=ours.params | {"sampling.seed": "0"})
    assert differences([ours, other], [theirs], recorded=True) == [
        "cell ngram: the reference has none",
        "none: prompts none, the reference has p",
        "none: setting sampling.seed 0, the reference has 1",
        "none: dtype none, the reference has bfloat16",
        "none: captured batch sizes none, the reference has 1,2",
        "none: torch version 2.14, the reference has 2.13",
    ]
    assert not any("torch" in d for d in differences([ours], [theirs], recorded=False))


def test_prompt_tokens_from_a_cache_are_a_difference():
    cached = replace(ngram(), proof=replace(ngram().proof, cached_prompt_tokens=7))
    assert differences([ngram()], [cached], recorded=True) == [
        "ngram: prompt tokens from the cache 0, the reference has 7"
    ]


@pytest.mark.parametrize("record", make_sweep(prompts_per_class=1, repetitions=2))
def test_an_arm_comes_back_from_json(record):
    found = arm(record, record.label)
    (again,) = load(dump(new_reference([found], {"fingerprint": "f"})).encode(), "x").arms
    assert exact_findings(again, found, str) == []
    assert again.accept_length == found.accept_length
    prompt = next(iter(found.times))
    assert again.times[prompt][1].verify_ms == pytest.approx(found.times[prompt][1].verify_ms, 1e-5)
