"""Things that go wrong in a sweep: finished work stays, the rest goes on, no process is left."""

from __future__ import annotations

import os
import signal
import socket

import pytest
from mlflow import MlflowClient

from tests.faults.conftest import PATIENCE_S

pytestmark = [
    pytest.mark.faults,
    # MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),
]


def test_cells_that_break_in_five_ways_fail_alone(bench):
    cells = "good,r:raise,x:exit,k:kill,h:hang,s:start"
    (bench.gate / "go").touch()
    driver = bench.drive(cells, timeout=8)
    output, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 1, output
    records = bench.records()
    reasons = {label: record.reason for label, record in records.items() if record.reason}
    assert {label: str(record.status) for label, record in records.items()} == {
        "good": "ok", "r": "failed", "x": "failed", "k": "failed", "h": "failed", "s": "failed",
    }  # fmt: skip
    assert reasons["r"] == "answer raised RuntimeError: the kernel is missing"
    assert reasons["s"] == "start raised RuntimeError: no weights at all"
    assert reasons["h"].startswith(
        "answer did not finish within 8 s; raise launcher.repetition_timeout_s, which limits a turn"
    )
    assert "died in answer" in reasons["x"]
    assert "died in answer" in reasons["k"]
    assert "the kernel is missing" in records["r"].log_tail
    assert not records["good"].reason
    assert records["good"].settings["wait_policy"] == "passive"
    assert output.count("failed: answer raised RuntimeError: the kernel is missing") == 2
    assert bench.left() == []


def test_a_cell_for_which_memory_runs_out_fails_and_the_sweep_ends_as_usual(bench):
    bench.environment["RAY_memory_usage_threshold"] = "0.0001"  # Ray then kills at once
    driver = bench.drive("a,b")
    output, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 1, output
    assert "dashboard: " in output
    for record in bench.records().values():
        assert record.status == "failed"
        assert "Ray killed it because the machine's memory was nearly full" in record.reason
    assert bench.left() == []


def test_a_killed_driver_leaves_no_process_and_resume_runs_only_the_rest(bench):
    driver = bench.drive("a,b")
    bench.until(lambda: list(bench.gate.glob("*-waits")))
    first = {r.params["engine.label"]: r.repetitions for r in bench.sweep().records()}
    assert [len(repetitions) for repetitions in first.values()] == [1, 1]
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    bench.until(lambda: bench.left() == [])

    (bench.gate / "go").touch()
    again = bench.drive("b,a", resume="true")
    output, _ = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, output
    records = bench.records()
    assert all(records[label].repetitions[:1] == first[label] for label in first)
    assert [len(record.repetitions) for record in records.values()] == [3, 3]
    assert all(record.proof.num_verify_steps == 180 for record in records.values())  # 3 × 3 × 20
    assert bench.left() == []
    assert _parents(bench) == ["FINISHED"]


def test_control_c_stops_everything_and_keeps_what_is_there(bench):
    driver = bench.drive("a,b")
    bench.until(lambda: list(bench.gate.glob("*-waits")))
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: the whole foreground group
    output, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 130, output
    assert "resume=true" in output
    assert bench.left() == []
    assert [len(record.repetitions) for record in bench.records().values()] == [1, 1]
    assert _parents(bench) == ["KILLED"]


def test_a_tracking_server_that_is_not_there_is_refused_before_any_cell_runs(bench):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    driver = bench.drive("a", uri=f"http://127.0.0.1:{port}")
    output, _ = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 2
    assert output.startswith(f"tracking.uri=http://127.0.0.1:{port}: cannot be opened")
    assert output.count("\n") == 1
    assert not (bench.runs / "sweeps").exists()
    assert bench.left() == []


def test_a_second_sweep_is_refused_or_waits_for_the_first(bench):
    first = bench.drive("a")
    bench.until(lambda: list(bench.gate.glob("*-waits")))
    refused = bench.drive("b")
    output, _ = refused.communicate(timeout=PATIENCE_S)
    assert refused.returncode == 2
    assert f"pid {first.pid}" in output
    assert "launcher.on_busy=wait" in output

    second = bench.drive("b", on_busy="wait")
    assert second.stdout is not None
    assert second.stdout.readline().startswith("waiting for the sweep that runs on this machine")
    (bench.gate / "go").touch()
    assert first.wait(PATIENCE_S) == 0
    assert second.wait(PATIENCE_S) == 0
    for driver in (first, second):
        driver.communicate()
    assert bench.left() == []


def _parents(bench):
    """Return the status of every parent run in the store."""
    client = MlflowClient(f"sqlite:///{bench.runs / 'mlflow.db'}")
    ids = [e.experiment_id for e in client.search_experiments()]
    return [run.info.status for run in client.search_runs(ids, "tags.kind = 'sweep'")]
