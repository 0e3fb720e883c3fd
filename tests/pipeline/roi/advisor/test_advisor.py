"""Each known fault is found where its figures show it, and nowhere else."""

from dataclasses import replace

import pytest

from pipeline.judge.comparison import compare
from pipeline.measure.wording import cell_names
from pipeline.roi.advisor import RULES, advise, advisor_section
from tests.pipeline.synthetic import make_plain, make_record, make_response, measured_later
from verify.base import Proof

NAMES = [f"{c}-{i}" for c in ("chat", "copy") for i in range(3)]
PROOF = Proof("cuda_graph", 10**6, 10**6, "bf16", "triton", "nccl", 122.0)


def plain(verify="graph_captured", ms=10.0, **changes):
    """Return plain decoding: 24 tokens a prompt, a verify time in ms and 1 ms of host time."""
    responses = [
        make_plain(n, n.split("-")[0], 24, verify_ms=(ms,) * 24)
        for n in changes.pop("names", NAMES)
    ]
    return make_record("none", verify, responses, proof=PROOF, **changes)


def drafted(drafter="eagle3", verify="graph_captured", committed=2, **changes):
    """Return a speculative cell whose steps commit the same number of tokens each."""
    verify_ms, draft_ms = changes.pop("verify_ms", 12.0), changes.pop("draft_ms", 1.0)
    steps, response = 24 // committed, changes.pop("response", {})
    responses = [
        make_response(
            n,
            n.split("-")[0],
            (committed,) * steps,
            verify_ms=(verify_ms,) * steps,
            draft_ms=(draft_ms,) * steps,
            **response,
        )
        for n in changes.pop("names", NAMES)
    ]
    return make_record(drafter, verify, responses, **{"proof": PROOF} | changes)


def found(*records):
    """Return the names of the rules that apply, by cell."""
    by_cell = {}
    for comparison in compare(records):
        for advice in advise(comparison):
            by_cell.setdefault(advice.cell_id, set()).add(advice.rule)
    return by_cell


TREE = {"proposed": (7,) * 12, "depth": (3,) * 12}


@pytest.mark.parametrize(
    ("rule", "cells", "cell"),
    [
        (
            "wide tree",
            [plain(), drafted(verify_ms=40.0, width=8, response=TREE)],
            "eagle3-graph_captured",
        ),
        (
            "copying on prose",
            [plain(), drafted("ngram", committed=1, verify_ms=14.0)],
            "ngram-graph_captured",
        ),
        (
            "draft too long",
            [plain(), drafted(verify_ms=30.0, draft_ms=6.0)],
            "eagle3-graph_captured",
        ),
        (
            "dear draft",
            [plain(), drafted(verify_ms=12.0, draft_ms=14.0)],
            "eagle3-graph_captured",
        ),
        ("broken drafter", [plain(), drafted(committed=1)], "eagle3-graph_captured"),
        (
            "left the graph",
            [plain(), drafted(proof=replace(PROOF, num_captured_steps=0))],
            "eagle3-graph_captured",
        ),
        (
            "host bound",
            [plain(), plain("extend", 30.0), drafted(verify="extend", verify_ms=40.0), drafted()],
            "eagle3-extend",
        ),
        (
            "fused loses",
            [plain(), drafted(), drafted(verify="fused_allreduce", verify_ms=13.0)],
            "eagle3-fused_allreduce",
        ),
        ("fused fell back", [plain(), drafted(verify="fused_allreduce")], "eagle3-fused_allreduce"),
        ("dear rows", [plain(), drafted(verify_ms=25.0)], "eagle3-graph_captured"),
        (
            "draft inherits quantisation",
            [
                plain(),
                drafted(committed=1, settings={"server_command": "serve --quantization fp8"}),
            ],
            "eagle3-graph_captured",
        ),
        (
            "capped requests",
            [
                plain(settings={"max_running_requests": "256"}),
                drafted(settings={"max_running_requests": "48"}),
            ],
            "eagle3-graph_captured",
        ),
        (
            "lost overlap",
            [
                plain(settings={"server_command": "serve --tp-size 8"}),
                drafted(
                    settings={"server_command": "serve --disable-overlap-schedule --tp-size 8"}
                ),
            ],
            "eagle3-graph_captured",
        ),
    ],
)
def test_a_known_fault_is_found(rule, cells, cell):
    assert rule in found(*cells)[cell]


@pytest.mark.parametrize(
    ("rule", "cell"),
    [
        ("copying on prose", drafted("ngram", committed=1, verify_ms=14.0)),
        ("draft too long", drafted(verify_ms=30.0, draft_ms=6.0)),
        ("broken drafter", drafted(committed=1)),
    ],
)
def test_a_pretended_accept_length_says_nothing_of_a_drafter(rule, cell):
    held = replace(cell, params=cell.params | {"sampling.held_accept_length": "2.0"})
    assert rule in found(plain(), cell)[cell.cell_id]
    assert rule not in found(plain(), held).get(cell.cell_id, set())


def test_a_running_batch_above_the_captured_sizes_is_found():
    cell = drafted(
        settings={"captured_batches": "1,2,4,8"}, proof=replace(PROOF, num_captured_steps=400_000)
    )
    cell = replace(cell, params=cell.params | {"parallelism.batch": "16"})

    assert "above captured sizes" in found(plain(), cell)[cell.cell_id]


@pytest.mark.parametrize(("verify_ms", "said"), [(12.3, False), (14.0, True)])
def test_a_fused_sum_over_shared_memory_that_loses_is_no_matter_of_message_size(verify_ms, said):
    shared = replace(PROOF, capture="native_plan", allreduce="fused", fused_allreduces_per_step=122)
    fused = drafted(verify="fused_allreduce", verify_ms=verify_ms, proof=shared)
    texts = [
        advice.text
        for comparison in compare([plain(), drafted(), fused])
        for advice in advise(comparison)
        if advice.rule == "fused loses"
    ]
    assert ["something held up a rank" in text for text in texts] == ([True] if said else [])


def texts(rule, sweep):
    """Return what a rule says of the one comparison of a sweep."""
    (comparison,) = compare(sweep)
    return [advice.text for advice in advise(comparison) if advice.rule == rule]


def test_an_eager_step_of_a_slower_hour_is_not_held_against_a_captured_one_of_another():
    cells = [plain(), drafted(verify="extend", verify_ms=14.0), drafted()]
    later = measured_later(cells, "eagle3-extend", "none-graph_captured", 2.0)
    assert texts("host bound", later) == [], "28 ms of that hour are 14 ms of the other's"

    dear = [plain(), drafted(verify="extend", verify_ms=40.0), drafted()]
    (said,) = texts("host bound", measured_later(dear, "eagle3-extend", "none-graph_captured", 2.0))
    assert "is 3.33 times the captured one (80.0 against 24.0 ms, scaled by the baseline" in said


def test_a_fused_step_of_a_slower_hour_does_not_lose_by_the_hour():
    cells = [plain(), drafted(), drafted(verify="fused_allreduce", verify_ms=11.0)]
    best, fused = "none-graph_captured", "eagle3-fused_allreduce"
    assert texts("fused loses", measured_later(cells, fused, best, 1.5)) == []
    assert texts("fused loses", measured_later(cells, "eagle3-graph_captured", best, 0.5)) == []


@pytest.mark.parametrize(("verify_ms", "said"), [(13.0, False), (15.0, True)])
def test_without_the_baseline_beside_both_small_differences_say_nothing(verify_ms, said):
    cells = [plain(), drafted(), drafted(verify="fused_allreduce", verify_ms=verify_ms)]
    alone = [replace(cell, group_starts=(cell.cell_id,)) for cell in cells]
    found = texts("fused loses", alone)
    assert [", measured at different times" in text for text in found] == [True] * said


def test_a_draft_with_a_quantisation_of_its_own_inherits_none():
    command = "serve --quantization fp8 --speculative-draft-model-quantization unquant"
    cell = drafted(committed=1, settings={"server_command": command})

    assert "draft inherits quantisation" not in found(plain(), cell)[cell.cell_id]


def test_break_even_that_grows_with_the_prompt_is_found():
    short = [make_response(n, "chat", (2,) * 12, num_prompt_tokens=100) for n in NAMES[:3]]
    long = [
        make_response(n, "chat", (2,) * 12, verify_ms=(60.0,) * 12, num_prompt_tokens=4000)
        for n in NAMES[3:]
    ]
    cell = make_record("eagle3", "graph_captured", [*short, *long], proof=PROOF)

    assert "long context" in found(plain(), cell)[cell.cell_id]


def test_responses_that_loop_are_found():
    looping = {"tokens": ((7, 8) * 13)[:25]}
    straight = [make_response(n, "chat", (2,) * 12) for n in NAMES[:2]]
    plain_ones = [make_plain(n, "chat", 24) for n in NAMES[:2]]
    cells = [
        make_record("none", "extend", [*plain_ones, make_plain("x", "chat", 24, **looping)]),
        make_record(
            "eagle3", "extend", [*straight, make_response("x", "chat", (2,) * 12, **looping)]
        ),
    ]

    assert "loops" in found(*cells)["eagle3-extend"]


def test_a_healthy_cell_gets_no_advice():
    healthy = drafted(committed=4, verify_ms=12.0)

    assert healthy.cell_id not in found(plain(), healthy)
    (comparison,) = compare([plain(), healthy])
    text = "\n".join(advisor_section(comparison, cell_names(comparison.records)))
    assert f"None of the {len(RULES)} known faults" in text


def test_every_rule_has_a_public_source_and_a_name_of_its_own():
    assert all(rule.source.startswith("https://") for rule in RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)
