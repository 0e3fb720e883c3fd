"""One cell on its way: what two processes of it prove together."""

from dataclasses import replace

import pytest

from pipeline.sweep.cell_process import OWN
from pipeline.sweep.running_cell import merge, tail
from pipeline.sweep.workers import WorkerFailed
from verify.base import Proof

PROOF = Proof("cuda_graph", 100, 99, "fp16", "fused")


def test_counts_of_an_interrupted_process_and_of_the_next_add_up():
    assert merge(PROOF, replace(PROOF, num_verify_steps=50, num_captured_steps=50)) == replace(
        PROOF, num_verify_steps=150, num_captured_steps=149
    )
    assert merge(None, PROOF) == PROOF


def test_the_mean_of_running_requests_is_over_the_steps_of_both_processes():
    earlier, now = (
        replace(PROOF, num_verify_steps=steps, num_captured_steps=0, running_requests=running)
        for steps, running in ((300, 4.0), (100, 2.0))
    )
    assert merge(earlier, now).running_requests == 3.5


def test_an_engine_that_runs_differently_after_an_interruption_is_not_the_same_cell():
    with pytest.raises(WorkerFailed, match=r"ran differently.*resume again"):
        merge(PROOF, replace(PROOF, capture="none"))


def test_the_end_of_a_log_is_short_and_a_missing_log_is_empty(tmp_path):
    log = tmp_path / "worker.log"
    assert tail(log) == ""
    log.write_bytes(b"\xff\n" + b"\n".join(b"%d" % i for i in range(100)))
    assert tail(log).splitlines() == [str(i) for i in range(70, 100)]


def test_the_end_of_a_log_is_the_engines_and_ends_with_what_the_reason_names(tmp_path):
    log = tmp_path / "worker.log"
    cause = "ModuleNotFoundError: No module named 'deep_gemm'"
    own = [f"{OWN}Traceback (most recent call last):", f"{OWN}ServerFault: it ended: {cause}"]
    echo = ["Traceback (most recent call last):", "RuntimeError: Rank 0 scheduler died"]
    log.write_text("\n".join(["Load weight begin.", cause, *echo, *own]) + "\n")
    assert tail(log, f"start raised ServerFault: ended: {cause}").splitlines() == [
        "Load weight begin.",
        cause,
    ]
    assert tail(log).splitlines() == ["Load weight begin.", cause, *echo, own[-1][len(OWN) :]]


def test_an_engine_that_said_nothing_leaves_our_own_last_words(tmp_path):
    log = tmp_path / "worker.log"
    log.write_text(f"{OWN}Traceback (most recent call last):\n{OWN}start failed: ValueError: no\n")
    assert tail(log) == "start failed: ValueError: no"


def test_the_end_of_a_log_has_no_colours_no_overwritten_lines_and_no_secrets(tmp_path):
    log = tmp_path / "worker.log"
    log.write_bytes(b"\x1b[31mred\x1b[0m\n0%|\r50%|\r\n" + b"y" * 9999 + b"\nhttp://me:pw@host/x\n")
    assert tail(log).splitlines() == ["red", "0%|", "50%|", "y" * 500, "http://***@host/x"]
