"""One cell on its way: what two processes of it prove together."""

from dataclasses import replace

import pytest

from pipeline.sweep.running_cell import WorkerFailed, merge, tail
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
