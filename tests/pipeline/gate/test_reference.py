"""Recorded references: what may become one, how it is kept, and what is compared with it."""

import json
import math
from dataclasses import replace

import pytest

from pipeline.gate.arm import arm
from pipeline.gate.outcome import GateVerdict
from pipeline.gate.reference import compare_recorded, dump, figures, load, new_reference, read
from pipeline.gate.settings import read as read_settings
from pipeline.gate.validity import refusals
from pipeline.record.record import Status
from tests.pipeline.synthetic import COST, make_record, make_response, make_sweep

HERE = {"fingerprint": "f", "commit": "abcdef012345", "cpu": "EPYC", "cores": "2", "gpus": "none"}
GRID = {k: v for k, v in COST.items() if k[1] == "graph_captured"}
SETTINGS = read_settings(["reference=x.json", "gate.run_noise=0.002"])


def arms(records):
    return [arm(record, record.label) for record in records]


def sweep(verify_ms=16.2):
    """A sweep of plain and n-gram decoding; only copying pays, as always."""
    cost = GRID | {("ngram", "graph_captured"): (0.1, verify_ms)}
    records = make_sweep(prompts_per_class=3, cost=cost)
    for record in records:
        record.params["prompts_digest"] = "abc"
    return records


def compare(candidate, machine=HERE, reference=None, failures=()):
    recorded = reference or new_reference(arms(sweep()), HERE)
    return compare_recorded(candidate, list(failures), recorded, machine, SETTINGS, str)


def test_a_reference_is_read_as_it_was_written(tmp_path):
    reference = new_reference(arms(sweep()), HERE)
    path = tmp_path / "reference.json"
    path.write_text(dump(reference))
    again = read(str(path))
    assert again.runs == reference.runs
    assert again.differences(reference) == []
    assert path.stat().st_size < 100_000


def damaged(*place, value=None):
    """Return a written reference in which one field has another value; none for a missing one."""
    data = json.loads(dump(new_reference(arms(sweep()), HERE)))
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return json.dumps(data).encode()


WHOLE = dump(new_reference(arms(sweep()), HERE)).encode()
DAMAGED = {
    "not JSON": (b"not json", "Invalid JSON: expected ident at line 1"),
    "empty": (b"", "Invalid JSON: EOF while parsing a value at line 1"),
    "half written": (WHOLE[: len(WHOLE) // 2], "Invalid JSON: EOF while parsing"),
    "binary": (b"\x80\x00\xff", "Invalid JSON"),
    "not UTF-8": (WHOLE.replace(b"copy", b"c\xf3py"), "Invalid JSON"),
    "a list": (b"[]", "(not an object)"),
    "a number": (b"1", "(not an object)"),
    "of a later format": (damaged("format", value=9), "format 9, this version reads 1"),
    "without a format": (damaged("format"), "format: Field required"),
    "without cells": (damaged("cells"), "cells: Field required"),
    "with no run": (damaged("runs", value=[]), "runs: "),
    "a cell lacks a field": (damaged("cells", 0, "width"), "cells.0.width: Field required"),
    "a number as text": (damaged("cells", 1, "width", value="4"), "cells.1.width: Input should"),
    "a cell is none": (damaged("cells", 1, value=7), "cells.1: not an object"),
    "a field of a later version": (damaged("cells", 0, "more", value=1), "cells.0.more: Unex"),
    "a figure that is none": (
        damaged("runs", 0, "figures", value={"step": {"value": math.nan, "noise": 0.1}}),
        "runs.0.figures.step: Value error, a figure of nan ± 0.1 is not finite",
    ),
}


@pytest.mark.parametrize(("data", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_reference_is_refused_in_one_line_that_names_file_and_field(data, reason):
    with pytest.raises(
        ValueError, match=r"^reference=x: not a recorded .*record_to=FILE$"
    ) as error:
        load(data, "reference=x")
    assert reason in str(error.value)


def test_a_missing_reference_says_how_to_record_one():
    with pytest.raises(ValueError, match=r"nowhere\.json: No such file.*gate\.record=true"):
        read("nowhere.json")


def test_the_figures_of_a_run_are_ratios_within_it_and_plain_decodes_own_time():
    assert set(figures(arms(sweep()))) == {
        "ngram × graph_captured: verify_ms / decode_ms",
        "ngram × graph_captured: ms_per_token / plain",
        "none × graph_captured: ms_per_token",
    }


def test_the_same_version_passes_and_a_slower_verify_step_does_not():
    same = compare(arms(sweep()))
    assert same.verdict is GateVerdict.PASS
    slower = compare(arms(sweep(verify_ms=16.2 * 1.05)))
    assert slower.verdict is GateVerdict.REGRESSION
    assert slower.findings == []
    verdicts = {t.name: (t.verdict, round(t.slow_down, 2)) for t in slower.timed}
    assert verdicts["ngram × graph_captured: verify_ms / decode_ms"] == ("regression", 0.05)
    assert verdicts["none × graph_captured: ms_per_token"][0] == "pass"


def test_absolute_times_are_compared_on_the_very_same_machine_only():
    elsewhere = compare(arms(sweep()), HERE | {"fingerprint": "g"})
    assert not any(t.name.endswith(": ms_per_token") for t in elsewhere.timed)
    assert "absolute tok/s are not compared" in elsewhere.notes[0]


def test_another_machine_class_and_failed_cells_are_not_comparable():
    outcome = compare(arms(sweep()), HERE | {"cores": "64"}, failures=["ngram failed: no memory"])
    assert outcome.verdict is GateVerdict.NOT_COMPARABLE
    assert outcome.differences == [
        "ngram failed: no memory",
        "machine class: cores is 64, the reference's is 2",
    ]
    assert (outcome.timed, outcome.findings) == ([], [])


def test_noise_between_runs_that_is_larger_than_the_effect_is_undecided_with_advice():
    settings = read_settings(["reference=x.json", "gate.run_noise=0.05"])
    recorded = new_reference(arms(sweep()), HERE)
    outcome = compare_recorded(arms(sweep()), [], recorded, HERE, settings, str)
    assert outcome.verdict is GateVerdict.UNDECIDED
    assert "record more runs of the reference (1 now, 6 let their own spread count)" in (
        outcome.advice
    )


def test_a_grid_without_plain_decoding_compares_no_time_and_says_so():
    alone = arms(sweep())[1:]
    outcome = compare(alone, reference=new_reference(alone, HERE))
    assert outcome.verdict is GateVerdict.UNDECIDED
    assert "drafter=none" in outcome.advice


def test_recorded_runs_that_agree_are_kept_together():
    reference = new_reference(arms(sweep()), HERE)
    for _ in range(20):
        reference = reference.with_run(new_reference(arms(sweep()), HERE))
    assert len(reference.runs) == 12
    other = arms(sweep())
    other[1] = replace(other[1], width=8)
    assert reference.differences(new_reference(other, HERE)) == [
        "ngram × graph_captured: width 8, the reference has 4"
    ]
    assert reference.differences(new_reference(arms(sweep()), HERE | {"cpu": "Xeon"})) == [
        "machine class"
    ]


def refused(records, allow=True):
    return refusals(arms(records), records, allow)


def test_a_sound_run_may_become_the_reference():
    assert refused(sweep()) == []


def test_a_run_below_break_even_needs_a_word():
    (line,) = refused(sweep(verify_ms=40.0), allow=False)
    assert "ngram × graph_captured is below break-even (0." in line
    assert "gate.allow_below_break_even=true" in line


def test_a_random_drafter_is_refused():
    records = sweep()
    plain = records[0]
    rejected = [
        [replace(r, proposed=(3,) * len(r.committed), depth=(3,) * len(r.committed)) for r in each]
        for each in plain.repetitions
    ]
    random = make_record("ngram", "graph_captured", *rejected, label="eagle3 × graph_captured")
    (line,) = refused([plain, random])
    assert line == (
        "eagle3 × graph_captured has accept length 1.000, as a random drafter has: check drafter's"
        " checkpoint and its vocabulary map (python -m drafters.vocab audit)"
    )


def test_cache_hits_are_refused():
    plain, ngram = sweep()
    proof = replace(ngram.proof, cached_prompt_tokens=31)
    lines = refused([plain, replace(ngram, proof=proof)])
    assert lines == [
        "ngram × graph_captured took 31 prompt tokens from the server's cache: turn the cache off"
        " (engine.extra_args must not enable it) and record again"
    ]


def test_a_void_or_failed_cell_is_refused():
    plain, ngram = sweep()
    lines = refused([plain, ngram.ended(Status.VOID, "half of the steps were eager")])
    assert lines == ["ngram × graph_captured is void: half of the steps were eager"]


def test_looping_answers_are_refused():
    tokens = (1,) * 97

    def looped(name, drafter, committed):
        proposed = (0,) * 96 if drafter == "none" else (3,) * len(committed)
        settings = {"tokens": tokens, "proposed": proposed, "depth": proposed}
        return make_response(name, "chat", committed, **settings)

    fine = make_sweep(prompts_per_class=2, cost=GRID, repetitions=2)
    records = []
    for record, drafter, committed in zip(
        fine, ("none", "ngram"), ((1,) * 96, (4,) * 24), strict=True
    ):
        extra = tuple(looped(f"loop-{i}", drafter, committed) for i in range(3))
        more = tuple((*each, *extra) for each in record.repetitions)
        records.append(replace(record, repetitions=more))
    lines = refused(records)
    assert any("is degenerate: 3 of 11 answers end in a loop" in line for line in lines)


def test_one_repetition_and_a_grid_without_a_drafter_are_refused():
    plain = make_sweep(prompts_per_class=2, cost=GRID, repetitions=1)[0]
    assert refused([plain]) == [
        "none × graph_captured was measured once: set measurement.min_repetitions=3 or more",
        "no cell drafts: give drafter=none,NAME, a reference is about speculation",
    ]


def test_a_reference_is_plain_json_without_infinities():
    text = dump(new_reference(arms(sweep()), HERE))
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name))["format"] == 1


def test_a_reference_whose_steps_and_tokens_disagree_is_refused():
    data = json.loads(dump(new_reference(arms(sweep()), HERE)))
    next(iter(data["cells"][0]["answers"].values()))["committed"].append(1)
    with pytest.raises(ValueError, match="its steps committed"):
        load(json.dumps(data).encode(), "reference=x.json")
