"""The command with a recorded reference, in a file and in MLflow; and the trend over its runs."""

import json

import pytest
from mlflow import MlflowClient

from pipeline.gate import command
from pipeline.gate import tracking as tracked
from pipeline.gate.__main__ import main
from pipeline.gate.command import Measured
from pipeline.gate.decision.promise import Promise
from pipeline.gate.outcome import GateVerdict, Outcome
from pipeline.track import Tracker
from tests.pipeline.gate.test_reference import sweep

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@pytest.fixture
def gate(runs, tmp_path, monkeypatch):
    """Run the command where a sweep's cells are given instead of measured."""

    def run(records, *arguments):
        measured = Measured(tuple(records), "sweep")
        monkeypatch.setattr(command, "measure_grid", lambda *_: measured)
        output = tmp_path / "out"
        return main([*arguments, f"runs={runs}", f"gate.output={output}", "gate.run_noise=0.002"])

    return run


def written(tmp_path):
    return json.loads((tmp_path / "out" / "gate.json").read_text())


def test_what_is_recorded_in_a_file_passes_against_itself_and_finds_a_slower_step(gate, tmp_path):
    path = tmp_path / "reference.json"
    record = ["gate.record=true", f"record_to={path}"]
    assert gate(sweep(), *record) == 0
    assert gate(sweep(), *record) == 0
    assert len(json.loads(path.read_text())["runs"]) == 2
    assert gate(sweep(), f"reference={path}") == 0
    assert gate(sweep(verify_ms=17.2), f"reference={path}") == 1
    assert {t["verdict"] for t in written(tmp_path)["timed"]} == {"regression", "pass"}


def test_a_reference_of_other_answers_is_replaced_and_says_what_it_was(gate, tmp_path, capsys):
    path = tmp_path / "reference.json"
    record = ["gate.record=true", f"record_to={path}"]
    assert gate(sweep(), *record) == 0
    other = sweep()
    for each in other:
        each.params["prompts_digest"] = "other"
    assert gate(other, *record) == 0
    assert (
        "since it was of another: none × graph_captured: prompts other" in capsys.readouterr().out
    )
    assert len(json.loads(path.read_text())["runs"]) == 1


def test_mlflow_finds_the_reference_of_this_grid_and_no_others(gate, runs, capsys):
    assert gate(sweep(), "reference=mlflow") == 2
    assert "no reference of this grid and machine class" in capsys.readouterr().err
    assert gate(sweep(), "gate.record=true") == 0
    assert gate(sweep(), "gate.record=true") == 0
    assert gate(sweep(), "reference=mlflow") == 0
    assert "2 runs recorded" in capsys.readouterr().out
    assert gate(sweep(), "reference=mlflow", "sampling.max_new_tokens=16") == 2


def test_a_run_that_must_not_become_a_reference_is_refused_and_written_nowhere(
    gate, runs, tmp_path, capsys
):
    path = tmp_path / "reference.json"
    assert gate(sweep(verify_ms=40.0), "gate.record=true", f"record_to={path}") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("gate.record=true: ngram × graph_captured is below break-even")
    assert not path.exists()
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    assert client.search_runs(["0", "1"], "tags.kind = 'gate_reference'") == []
    word = "gate.allow_below_break_even=true"
    assert gate(sweep(verify_ms=40.0), "gate.record=true", f"record_to={path}", word) == 0


def test_a_recorded_reference_is_of_the_version_that_runs(gate, tmp_path, capsys):
    assert gate(sweep(), f"candidate={tmp_path}", "gate.record=true") == 2
    assert "the version is the one that runs the gate" in capsys.readouterr().err


def test_sampled_cells_are_refused(gate, capsys):
    assert gate(sweep(), "gate.record=true", "sampling.temperature=0.7") == 2
    assert "set sampling.temperature=0" in capsys.readouterr().err


def test_a_slow_drift_over_runs_is_found_and_steady_runs_are_not(runs):
    tracker = Tracker.open(f"sqlite:///{runs}/mlflow.db", "gate", runs)
    machine = {"cpu": "EPYC"}
    (runs / "sweeps").mkdir()

    def outcome(value):
        figures = {"ngram × graph_captured: verify_ms / decode_ms": value, "steady": 2.0}
        return Outcome(GateVerdict.PASS, "side by side", "a", "b", Promise(), figures=figures)

    for number in range(9):
        drifting = outcome(1.5 * 1.004**number)
        assert tracked.drifts(tracker, drifting, "grid", machine, 20) == [] or number >= 7
        tracked.log_outcome(tracker, drifting, "grid", machine, runs / "sweeps")
    (line,) = tracked.drifts(tracker, outcome(1.5 * 1.004**9), "grid", machine, 20)
    assert line.startswith("slow drift over 10 runs: ngram × graph_captured: verify_ms / decode_ms")
    assert "+3.7%" in line
    assert tracked.drifts(tracker, outcome(1.56), "other grid", machine, 20) == []
