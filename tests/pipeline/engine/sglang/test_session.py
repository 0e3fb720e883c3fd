"""A whole cell against a server that plays SGLang: counts, times, proof."""

import json
import shlex
from dataclasses import replace

import pytest

from drafters.ngram import Ngram
from drafters.standalone import Standalone
from pipeline.cell.cell import Parallelism
from pipeline.engine.sglang.versions import FLAGS
from pipeline.judge.comparison import own_fault
from pipeline.measure import measure
from pipeline.measure.prompts import looping_prompts
from pipeline.record.record import Status
from pipeline.sweep.build import PlannedCell
from tests.pipeline.engine.sglang.prompts import PROMPTS
from verify.breakdown import Breakdown
from verify.extend import Extend
from verify.fused_allreduce import FusedAllreduce
from verify.graph_captured import GraphCaptured


def test_a_speculative_cell_gives_each_steps_tokens_and_keeps_every_identity(started, ngram_cell):
    session = started(ngram_cell)
    responses = tuple(session.generate(prompt, 0) for prompt in PROMPTS)
    assert all(sum(r.committed) == len(r.tokens) - 1 == 23 for r in responses)
    assert responses[0].committed[:4] == (1, 2, 4, 3)
    record = replace(
        PlannedCell(ngram_cell, tuple(PROMPTS), "").record,
        repetitions=(responses,),
        proof=session.proof(),
        status=Status.OK,
    )
    assert own_fault(record) == ""
    figures = measure(record, None).overall
    steps = sum(len(r.committed) for r in responses)
    assert figures.accept_length.value == pytest.approx(69 / steps)
    assert figures.verify_ms == pytest.approx(1.2)
    assert looping_prompts(record) == frozenset()


def test_the_baseline_says_the_same_tokens_and_notes_their_margins(started, cell, ngram_cell):
    plain = started(cell).generate(PROMPTS[0], 0)
    speculative = started(ngram_cell).generate(PROMPTS[0], 0)
    assert plain.tokens == speculative.tokens
    assert plain.committed == (1,) * 23
    assert plain.margins == pytest.approx((1.5,) * 24)
    assert speculative.margins == ()


@pytest.mark.parametrize(
    ("verify", "captured", "eager"),
    [(GraphCaptured(), 1.0, 1.0), (Extend(), 0.0, 1.0), (Extend(scope="all"), 0.0, 0.0)],
    ids=["graph_captured", "extend", "extend_all"],
)
def test_the_proof_holds_the_share_that_the_label_promises(
    started, cell, ngram_cell, verify, captured, eager
):
    for each, share in ((replace(ngram_cell, verify=verify), captured), (cell, eager)):
        each = replace(each, verify=verify)
        session = started(each)
        session.generate(PROMPTS[0], 0)
        proof = session.proof()
        assert proof.graph_share == share
        assert verify.contradiction(proof) is None
        assert proof.problem == ""


def test_a_captured_cell_that_falls_out_of_its_graphs_is_contradicted(started, ngram_cell):
    session = started(ngram_cell, "falls_out_of_the_graph")
    session.generate(PROMPTS[0], 0)
    assert "0.0% of" in (ngram_cell.verify.contradiction(session.proof()) or "")


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
@pytest.mark.parametrize(
    ("verify", "kind", "fused"),
    [
        (FusedAllreduce(), "fused", 95),
        (GraphCaptured(), "custom", 0),
        (GraphCaptured(allreduce="nccl"), "nccl", 0),
    ],
    ids=["fused", "auto", "nccl"],
)
def test_the_kernels_of_a_trace_say_which_all_reduce_ran(
    started, ngram_cell, monkeypatch, verify, kind, fused, version
):
    monkeypatch.setenv("FAKE_VERSION", version)
    two = replace(ngram_cell, verify=verify, parallelism=Parallelism(tp=2))
    session = started(two)
    session.generate(PROMPTS[0], 0)
    proof = session.proof()
    assert (proof.allreduce, proof.fused_allreduces_per_step) == (kind, fused)
    assert proof.allreduces_per_step == 97
    assert verify.contradiction(proof) is None
    settings = session.settings()
    assert f"all-reduces: {fused} fused" in settings["trace"]
    assert Breakdown(**json.loads(settings["breakdown"])).total > 0


def test_kimi_whose_layers_fused_in_part_alone_is_contradicted(started, ngram_cell, folder):
    text = json.loads((folder / "config.json").read_text())
    whole = {"architectures": ["KimiK25ForConditionalGeneration"], "text_config": text}
    (folder / "config.json").write_text(json.dumps(text | whole))
    two = replace(ngram_cell, verify=FusedAllreduce(), parallelism=Parallelism(tp=2))
    for fault, said in (("", None), ("fuses_some", "47 of 97 all-reduces a step were fused")):
        session = started(two, fault)
        session.generate(PROMPTS[0], 0)
        found = two.verify.contradiction(session.proof())
        assert (found and found[: len(said or "")]) == said


def test_a_closed_loop_is_traced_with_all_of_its_requests_in_flight(started, ngram_cell):
    session = started(replace(ngram_cell, parallelism=Parallelism(tp=2, batch=3)))
    assert "3 forwards of 3 requests" in session.settings()["trace"]


def test_a_fused_cell_that_ran_unfused_is_contradicted_with_the_share(started, ngram_cell):
    two = replace(ngram_cell, verify=FusedAllreduce(), parallelism=Parallelism(tp=2))
    session = started(two, "does_not_fuse")
    session.generate(PROMPTS[0], 0)
    said = two.verify.contradiction(session.proof())
    assert said == (
        "0 of 97 all-reduces a step were fused (custom); a fused_allreduce cell needs 95"
    )


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("caches", "3 prompt tokens came from the cache"),
        ("retracts", "began 1 requests again"),
        ("timers_disagree", "SGLang's device timer"),
        ("hides_drafter", "the plugin saw no time of the drafter"),
    ],
)
def test_a_fault_of_the_run_is_the_proofs_problem(started, ngram_cell, fault, problem):
    longer = replace(ngram_cell, sampling=replace(ngram_cell.sampling, max_new_tokens=160))
    session = started(longer, fault)
    session.generate(PROMPTS[0], 0)
    assert problem in session.proof().problem


@pytest.mark.parametrize(
    ("verify", "fault", "problem"),
    [
        (GraphCaptured(), "", ""),
        (Extend(), "", ""),
        (
            GraphCaptured(),
            "is_traced_eager",
            "100% of the steps count as captured, but a trace shows 0% of the forwards launched as"
            " a graph",
        ),
    ],
    ids=["captured", "eager", "traced_eager"],
)
def test_what_steps_count_as_must_be_how_a_trace_shows_them(
    started, ngram_cell, verify, fault, problem
):
    two = replace(ngram_cell, verify=verify, parallelism=Parallelism(tp=2))
    session = started(two, fault)
    session.generate(PROMPTS[0], 0)
    assert session.proof().problem == problem


def test_counts_that_contradict_each_other_are_refused(started, ngram_cell):
    session = started(ngram_cell, "miscounts")
    with pytest.raises(RuntimeError, match=r"the plugin saw \d+ steps .* SGLang counted"):
        session.generate(PROMPTS[0], 0)


def test_a_server_without_the_plugin_is_refused(started, ngram_cell):
    with pytest.raises(RuntimeError, match="the plugin did not announce itself"):
        started(ngram_cell, "no_plugin")


def test_a_closed_loop_keeps_the_order_of_the_prompts(started, ngram_cell):
    session = started(replace(ngram_cell, parallelism=Parallelism(batch=3)))
    responses = session.answer(PROMPTS, 0)
    assert [r.prompt_id for r in responses] == ["p0", "p1", "p2"]
    assert all(sum(r.committed) == 23 for r in responses)


def test_a_loop_wider_than_the_workload_is_refused(started, ngram_cell):
    with pytest.raises(ValueError, match=r"parallelism\.batch=4: the workload has 3 prompts"):
        started(replace(ngram_cell, parallelism=Parallelism(batch=4)))


def test_the_settings_say_how_to_serve_the_same_without_measuring(started, ngram_cell, folder):
    settings = started(ngram_cell).settings()
    assert settings["dtype"] == "bfloat16"
    assert f"--model-path {folder}" in settings["deploy"]
    assert "--speculative-num-draft-tokens 4" in settings["deploy"]
    assert "skip-tokenizer-init" not in settings["deploy"]


def test_arguments_with_spaces_stay_whole_in_the_commands(started, ngram_cell, monkeypatch):
    extra = ("--model-loader-extra-config", '{"num_threads": 8}')
    monkeypatch.setenv("FAKE_FLAGS", json.dumps([*sorted(FLAGS), extra[0][2:]]))
    session = started(replace(ngram_cell, engine=replace(ngram_cell.engine, extra_args=extra)))
    settings = session.settings()
    for command in (settings["deploy"], settings["server_command"]):
        assert shlex.split(command.replace("\\\n", ""))[-1] == extra[1]


def test_a_standalone_drafter_needs_only_its_arguments(started, cell, tmp_path, folder):
    session = started(replace(cell, drafter=Standalone(str(folder))))
    assert session.generate(PROMPTS[0], 0).depth[0] == 3


def test_an_ngram_tree_is_named_by_its_breadth(started, cell):
    tree = Ngram(name="ngram_tree", num_draft_tokens=7, breadth=3)
    session = started(replace(cell, drafter=tree))
    assert session.generate(PROMPTS[0], 0).proposed[0] == 7
    assert "--speculative-ngram-max-bfs-breadth 3" in session.settings()["server_command"]
