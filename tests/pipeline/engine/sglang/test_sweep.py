"""A sweep over servers: one breaks, the others are measured, proven and reported."""

import shutil
import time
from dataclasses import replace

import pytest

from drafters.ngram import Ngram
from experiments.sglang_grid.away import REPETITION_S, scheduler_of
from pipeline.cell.cell import Sampling
from pipeline.judge.comparison import judge
from pipeline.record.record import Status
from pipeline.record.sweep_folder import SweepFolder
from pipeline.sweep.build import PlannedCell
from pipeline.sweep.launch import run_sweep
from pipeline.sweep.running_cell import RunningCell
from pipeline.sweep.stop_rule import StopRule
from tests.pipeline.engine.sglang.prompts import PROMPTS
from tests.pipeline.inline import InlineLauncher, InlineWorker, make_settings
from verify.extend import Extend

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@pytest.fixture
def sweep(tmp_path, monkeypatch, empty_store):
    """Runs cells with workers in this process; returns the exit status and the records."""
    runs = tmp_path / "runs"
    runs.mkdir()
    shutil.copy(empty_store, runs)

    def run(*cells, fault: str = ""):
        monkeypatch.setenv("FAKE_FAULT", fault)
        planned = [PlannedCell(cell, tuple(PROMPTS), "") for cell in cells]
        settings = make_settings(runs, InlineLauncher(num_gpus=1))
        status = run_sweep(planned, settings, time.perf_counter())
        return status, SweepFolder(next((runs / "sweeps").iterdir())).records()

    return run


def test_a_server_that_dies_fails_its_cell_with_the_cause_and_the_next_one_runs(
    sweep, cell, ngram_cell
):
    status, records = sweep(cell, ngram_cell, fault="speculation_crashes")
    assert status == 1
    assert [r.status for r in records] == [Status.OK, Status.FAILED]
    assert "torch.OutOfMemoryError: CUDA out of memory" in records[1].reason


def test_without_a_gpu_a_server_is_sent_to_the_box_or_only_printed(
    tmp_path, cell, empty_store, capsys
):
    shutil.copy(empty_store, tmp_path)
    launcher = InlineLauncher(num_gpus=0)
    settings = make_settings(tmp_path, launcher)
    assert run_sweep([PlannedCell(cell, tuple(PROMPTS), "")], settings, time.perf_counter()) == 2
    assert capsys.readouterr().err == (
        "none × graph_captured needs 1 GPU and none is visible at launcher.address=inline; run it"
        " on the GPU box (launcher=cluster launcher.address=HOST:PORT), or print what it would"
        " start with dry_run=true, or use engine=torch\n"
    )
    assert launcher.log == []


def test_an_engines_own_time_for_its_start_is_not_cut_short(cell, tmp_path):
    """A large model loads longer than the launcher would wait; the engine says why it gave up."""
    waited = {}

    class Patient(InlineWorker):
        def result(self, timeout_s):
            waited[self.phase[0]] = timeout_s
            return super().result(timeout_s)

    patient = replace(cell, engine=replace(cell.engine, start_timeout_s=3600.0))
    running = RunningCell(
        PlannedCell(patient, tuple(PROMPTS), ""), tmp_path, PlannedCell(patient, (), "").record
    )
    measuring = StopRule(min_repetitions=1, max_repetitions=1)
    scheduler_of(measuring, 1, lambda running: Patient([], "")).run([running])
    assert running.record.status is Status.OK
    assert waited["start"] > 3600
    assert waited["warm_up"] == waited["answer"] == REPETITION_S


def test_a_grid_is_measured_proven_and_void_where_it_fell_back(sweep, cell, ngram_cell):
    eager = replace(ngram_cell, verify=Extend())
    status, records = sweep(cell, ngram_cell, eager, fault="falls_out_of_the_graph")
    assert status == 1, "two cells do not count"
    assert [r.status for r in records] == [Status.VOID, Status.VOID, Status.OK]
    assert "0.0% of" in records[0].reason


def test_a_run_with_a_problem_is_void_with_it(sweep, ngram_cell):
    _, (record,) = sweep(ngram_cell, fault="caches")
    assert record.status is Status.VOID
    assert "came from the cache instead of being computed" in record.reason


def test_a_held_accept_length_is_marked_and_kept_apart_from_real_ones(sweep, cell, ngram_cell):
    held = Sampling(24, held_accept_length=2.5)
    cells = [replace(each, sampling=held) for each in (cell, ngram_cell)]
    status, records = sweep(*cells)
    assert status == 0
    assert records[1].label == "ngram × graph_captured (accept length held at 2.5)"
    assert records[0].label == "none × graph_captured"
    assert not records[1].greedy, "its text is not the target's"
    assert [r.status for r in records] == [Status.OK, Status.OK]
    assert not any("differs from" in r.reason for r in judge(records))
    assert {cell.comparison for cell in cells} != {ngram_cell.comparison}
    assert len({cell.comparison for cell in cells}) == 1


def test_waiting_longer_for_a_server_makes_no_other_cell_of_it(cell):
    patient = replace(cell, engine=replace(cell.engine, start_timeout_s=9999.0))
    other = replace(cell, engine=replace(cell.engine, page_size=16))
    assert patient.cell_id == cell.cell_id
    assert patient.comparison == cell.comparison
    assert other.cell_id != cell.cell_id


def test_a_drafter_that_only_a_server_has_is_refused_by_the_torch_engine(cell):
    from drafters.standalone import Standalone
    from pipeline.engine.torch.engine import TorchEngine

    torch = TorchEngine()
    with pytest.raises(ValueError, match=r"drafter=standalone cannot run on engine=torch"):
        torch.check(replace(cell, drafter=Standalone("a/b"), engine=torch))
    held = replace(cell, drafter=Ngram(), sampling=Sampling(8, held_accept_length=2))
    with pytest.raises(ValueError, match=r"held_accept_length=2: engine=torch accepts what"):
        torch.check(replace(held, engine=torch))
