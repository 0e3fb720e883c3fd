"""Tables of what a step costs, from records as SGLang leaves them."""

import json
from dataclasses import replace

import pytest

from experiments.kimi_slice.slice_costs import expert_lines, kimi_lines
from experiments.sglang_grid.step_costs import cost
from tests.pipeline.synthetic import make_record, make_response
from verify.base import Proof

PARTS = {"compute": 0.2, "wire": 0.01, "wait": 0.3, "launch": 0.7}


def measured(target, verify, verify_ms, capture="cuda_graph", **params):
    """Return the cost of a cell whose two repetitions differ by 0.2 ms."""
    record = make_record(
        "ngram",
        verify,
        *([make_response(verify_ms=(ms,) * 3)] for ms in (verify_ms - 0.1, verify_ms + 0.1)),
        proof=Proof(capture, 6, 6, "SGLang's", "triton"),
        settings={"breakdown": json.dumps(PARTS), "trace": "38 kernels a forward"},
    )
    return cost(replace(record, params=record.params | {"target": target} | params))


def test_an_eager_steps_kernels_are_counted_without_their_waiting_allreduces():
    assert measured("kimi_slice_1", "graph_captured", 1.0).gpu_ms == pytest.approx(0.21)
    assert measured("kimi_slice_1", "extend", 4.0, capture="none").gpu_ms == pytest.approx(0.2)


def test_a_backend_is_named_with_what_is_unlike_its_default():
    params = {"verify.allreduce": "nccl"}
    assert measured("t", "graph_captured", 1.0, **params).backend == "graph_captured nccl"
    params = {"verify.allreduce": "auto"}
    assert measured("t", "graph_captured", 1.0, **params).backend == "graph_captured"


def test_sixty_layers_are_the_difference_of_depths_with_the_error_that_repetitions_leave():
    cells = [measured(f"kimi_slice_{n}", "graph_captured", ms) for n, ms in ((1, 1.0), (4, 1.3))]
    row = list(kimi_lines(cells))[-1]
    assert "| 1.000 (0.210) | 1.300 (0.210) | 0.100 (0.000) | 7.00 ± 2.76 (0.21) |" in row


def test_a_slice_whose_other_depth_is_missing_is_shown_and_not_extrapolated():
    row = list(kimi_lines([measured("kimi_slice_1", "graph_captured", 1.0)]))[-1]
    assert row.startswith("| graph_captured | 4 | 1.000 (0.210) |  |  |  |")


def test_a_target_that_is_no_slice_has_its_table_too():
    lines = list(expert_lines([measured("qwen3_moe", "extend", 5.0)], "qwen3_moe"))
    assert lines[-1] == "| 4 | ngram | 15.0 | 5.000 (0.210) |"
