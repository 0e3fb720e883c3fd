"""Which cells count, which are void and why, and what is compared with what."""

from dataclasses import replace

import pytest

from pipeline.judge.comparison import compare, judge
from pipeline.record.record import Status
from pipeline.report.trust import trust
from tests.pipeline.synthetic import (
    make_plain,
    make_record,
    make_response,
    make_sweep,
    measured_later,
    slower,
)


def changed(record, **changes):
    """Return the record with every response changed."""
    repetitions = tuple(
        tuple(replace(r, **changes) for r in responses) for responses in record.repetitions
    )
    return replace(record, repetitions=repetitions)


def with_loops(record, ids):
    """Return the record in which the responses to some prompts are one token, said over."""
    repetitions = tuple(
        tuple(replace(r, tokens=(7,) * len(r.tokens)) if r.prompt_id in ids else r for r in each)
        for each in record.repetitions
    )
    return replace(record, repetitions=repetitions)


def reasons(records):
    return {r.label: r.reason for r in judge(records) if r.status is Status.VOID}


def test_a_sound_sweep_is_left_as_it_is_and_compared_with_its_fastest_plain_cell():
    sweep = make_sweep()
    (comparison,) = compare(sweep)
    assert list(comparison.records) == sweep
    assert comparison.best.label == "none × graph_captured"
    assert comparison.exclude == frozenset()
    best = {m.overall.versus.baseline for m in comparison.measurements.values()}
    assert best == {"none × graph_captured"}


def two_plain_cells_and_a_later_cell(faster):
    """Return a sweep in which a drafted cell came later and stood beside `none × extend` alone.

    `none × graph_captured` is so much faster, by its share of the time.
    """
    extend, _, *drafted = make_sweep()
    later = replace(drafted[1], label="later")
    captured = slower(extend, 1 / faster)
    params = extend.params | {"verify": "graph_captured"}
    captured = replace(captured, cell_id="none-graph_captured", params=params, label="faster")
    sweep = [extend, captured, drafted[0], later]
    return measured_later(sweep, later.cell_id, extend.cell_id, 3.0)


def test_of_two_plain_cells_that_are_as_fast_the_one_beside_more_cells_is_the_baseline():
    (comparison,) = compare(two_plain_cells_and_a_later_cell(faster=1.015))
    assert comparison.best.label == "none × extend"
    assert comparison.not_interleaved == frozenset()
    measured = comparison.measurements["none-graph_captured"]
    assert measured.overall.versus.speed_up.value == pytest.approx(1.015, abs=0.001)


def test_a_plain_cell_that_is_really_faster_is_the_baseline_and_later_cells_stand_apart():
    (comparison,) = compare(two_plain_cells_and_a_later_cell(faster=1.1))
    assert comparison.best.label == "faster"
    assert comparison.not_interleaved == {"ngram-graph_captured"}


def test_cells_of_other_comparisons_are_never_a_baseline():
    sweep = make_sweep()
    elsewhere = replace(sweep[1], comparison="another", cell_id="x")
    first, second = compare([*sweep[:1], *sweep[2:], elsewhere])
    assert first.best.label == "none × extend"
    assert [r.cell_id for r in second.records] == ["x"]


def test_judging_keeps_the_order_and_every_other_end():
    sweep = make_sweep(2, 40)
    ended = [
        sweep[3],
        sweep[0].ended(Status.FAILED, "worker died"),
        replace(sweep[1].ended(Status.SKIPPED, "impossible"), repetitions=()),
        replace(sweep[2].ended(Status.VOID, "label contradicted"), repetitions=()),
    ]
    assert judge(ended) == ended


def test_a_planted_wrong_token_voids_its_cell_only():
    *others, drafted = make_sweep()
    first = drafted.repetitions[1][5]
    wrong = replace(first, tokens=(*first.tokens[:20], 3, *first.tokens[21:]))
    planted = replace(
        drafted,
        repetitions=(
            drafted.repetitions[0],
            (*drafted.repetitions[1][:5], wrong, *drafted.repetitions[1][6:]),
            drafted.repetitions[2],
        ),
    )
    found = reasons([*others, planted])
    assert list(found) == ["ngram × graph_captured"]
    assert (
        "in 1 of 72 responses, first in prompt code-1, repetition 1, output token 20: 3"
        in (found["ngram × graph_captured"])
    )


def test_sampled_outputs_are_not_compared():
    sweep = [replace(r, greedy=False) for r in make_sweep()]
    sweep[3] = changed(sweep[3], tokens=tuple(range(96)))
    (comparison,) = compare(sweep)
    assert comparison.lossless == {}
    assert {r.status for r in comparison.records} == {Status.OK}


def test_a_broken_fast_baseline_is_convicted_by_the_eager_one_and_no_longer_the_best():
    extend, captured, *drafted = make_sweep()
    found = compare([extend, changed(captured, tokens=tuple(range(96))), *drafted])[0]
    assert [r.status is Status.VOID for r in found.records] == [False, True, False, True]
    assert found.records[3].reason.endswith("with this verify backend is missing")
    assert found.best.label == "none × extend"
    assert found.lossless["ngram-graph_captured"].reference == "none × extend"


def test_a_looping_prompt_leaves_every_arm_alike():
    sweep = [with_loops(r, {"copy-1", "chat-2"}) for r in make_sweep()]
    (comparison,) = compare(sweep)
    assert comparison.exclude == {"copy-1", "chat-2"}
    counts = {m.overall.num_prompts for m in comparison.measurements.values()}
    assert counts == {22}
    assert {m.looping_share for m in comparison.measurements.values()} == {2 / 24}


def test_a_loop_in_one_sampled_arm_leaves_the_others_too():
    sweep = [replace(r, greedy=False) for r in make_sweep()]
    sweep[3] = with_loops(sweep[3], {"math-0"})
    (comparison,) = compare(sweep)
    assert {m.excluded for m in comparison.measurements.values()} == {("math-0",)}
    assert comparison.measurements["none-extend"].looping_share == 0


def test_a_cell_that_loops_on_most_prompts_is_void_and_takes_no_prompt_from_the_others():
    sweep = [replace(r, greedy=False) for r in make_sweep()]
    ids = {f"{c}-{i}" for c in ("chat", "copy", "code") for i in range(5)}
    sweep[3] = with_loops(sweep[3], ids)
    (comparison,) = compare(sweep)
    assert "15 of 24 responses end in a loop" in comparison.records[3].reason
    assert comparison.exclude == frozenset()


def test_when_the_arms_together_lose_most_prompts_none_of_them_counts():
    sweep = [replace(r, greedy=False) for r in make_sweep()]
    for index, category in enumerate(("chat", "copy", "code")):
        sweep[index] = with_loops(sweep[index], {f"{category}-{i}" for i in range(5)})
    assert set(reasons(sweep).values()) == {"15 of 24 prompts loop in one arm or another"}


def test_an_unfinished_cell_has_no_figures():
    sweep = make_sweep(2, 40)
    running = replace(sweep[3], status=Status.UNFINISHED)
    (comparison,) = compare([*sweep[:3], running])
    assert "ngram-graph_captured" not in comparison.measurements


def test_a_cell_whose_honest_prompts_took_no_step_is_void():
    loop = make_response("a", committed=[1] * 30, tokens=(7,) * 31)
    empty = make_response("b", committed=[], tokens=(0,), finish="stop")
    assert reasons([make_record("ngram", "extend", [loop, empty])]) == {
        "ngram × extend": "no prompt with a verify step is left beside those that loop"
    }


def test_without_plain_decode_of_its_backend_a_cell_is_neither_void_nor_proven():
    """A plain cell of another backend, or none at all, proves nothing about a drafted one."""
    eager = make_record("none", "extend", [make_plain(num_tokens=4)])
    same = [make_response(committed=(2, 2)), make_response(committed=(2, 2))]
    other = make_response(committed=(2, 2), tokens=(100, 101, 7, 8, 9))
    ngram = make_record("ngram", "graph_captured", [same[0]])
    eagle = make_record("eagle3", "graph_captured", [other])
    (alone,) = compare([ngram, eagle])
    (beside,) = compare([eager, ngram, eagle])
    for found in (alone, beside):
        assert {r.status for r in found.records} == {Status.OK}
        assert [f.proven for k, f in found.lossless.items() if k != eager.cell_id] == [False] * 2
        assert [len(found.lossless[r.cell_id].unproven) for r in (ngram, eagle)] == [1, 1]
        text = " ".join(trust(found, {r.cell_id: r.label for r in found.records}))
        assert "**Not proven lossless:** ngram × graph_captured, eagle3 × graph_captured" in text
        assert "Run drafter=none under the same backend" in text
        assert "cells compared repeat plain decoding" not in text or found is beside


def test_a_plain_cell_that_failed_proves_nothing_either():
    failed = make_record("none", "graph_captured", status=Status.FAILED)
    ngram = make_record("ngram", "graph_captured", [make_response(committed=(2, 2))])
    (found,) = compare([failed, ngram])
    assert not found.lossless[ngram.cell_id].proven
    assert found.records[1].status is Status.OK
