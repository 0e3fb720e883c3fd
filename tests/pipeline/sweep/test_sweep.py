"""A sweep from cells to report, with workers in this process."""

import errno
import shutil
import time

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from pipeline.record.record import Status
from pipeline.record.sweep_folder import SweepFolder
from pipeline.sweep.launch import run_sweep
from pipeline.track import Tracker, load
from pipeline.track.sender import Sender
from tests.faults.tiny_engine import TinyEngine, plan
from tests.pipeline.inline import InlineLauncher, make_settings

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@pytest.fixture(autouse=True)
def store(tmp_path, empty_store):
    """An MLflow store of its own."""
    shutil.copy(empty_store, tmp_path)


def sweep(runs, planned, **changed):
    """Run a sweep; return its exit status, its folder and what its workers did."""
    launcher = changed.pop("launcher", None) or InlineLauncher()
    status = run_sweep(planned, make_settings(runs, launcher, **changed), time.perf_counter())
    folders = sorted((runs / "sweeps").iterdir())
    return status, SweepFolder(folders[-1]), launcher.log


def test_cells_take_turns_in_shuffled_rounds_and_nothing_starts_between(tmp_path):
    planned = [plan(TinyEngine(label)) for label in "abcd"]
    status, folder, log = sweep(tmp_path, planned, seed=1)
    assert status == 0
    assert [r.status for r in folder.records()] == [Status.OK] * 4
    ids = [p.cell.cell_id for p in planned]
    assert [name for _, name in log[:8]] == ["start"] * 4 + ["warm_up"] * 4
    turns = [cell for cell, name in log if name == "answer"]
    by_prompt = [turns[i : i + 4] for i in range(0, len(turns), 4)]  # 3 rounds of 3 prompts
    assert len(by_prompt) == 9
    assert all(sorted(each) == sorted(ids) for each in by_prompt), (
        "every cell, then the next prompt"
    )
    assert len({tuple(each) for each in by_prompt}) > 1, "rounds differ in order"
    prompts = [[r.prompt_id for r in rep] for rec in folder.records() for rep in rec.repetitions]
    assert prompts == [["p0", "p1", "p2"]] * 12


@pytest.mark.parametrize(
    ("ability", "launcher", "loaded"),
    [
        ({}, InlineLauncher(resident=2), 2),
        ({"resident": False}, InlineLauncher(), 1),
        ({"num_gpus": lambda self, cell: 2}, InlineLauncher(num_gpus=4), 2),
    ],
)
def test_no_more_cells_are_loaded_at_once_than_settings_engine_and_gpus_allow(
    tmp_path, monkeypatch, ability, launcher, loaded
):
    for name, value in ability.items():
        monkeypatch.setattr(TinyEngine, name, value, raising=False)
    sweep(tmp_path, [plan(TinyEngine(label)) for label in "abc"], launcher=launcher)
    alive, most = set(), 0
    for cell, name in launcher.log:
        alive = alive | {cell} if name != "kill" else alive - {cell}
        most = max(most, len(alive))
    assert most == loaded


def test_a_cell_whose_proof_contradicts_its_label_is_void_and_kept_on_resume(tmp_path):
    planned = [plan(TinyEngine("a", captures=True))]
    status, folder, _ = sweep(tmp_path, planned)
    (record,) = folder.records()
    assert (status, record.status) == (1, Status.VOID)
    assert record.reason.startswith("180 of 180 verify steps were replayed")
    _, _, log = sweep(tmp_path, planned, resume=True)
    assert log == []


def test_a_failed_cell_gives_status_1_and_resume_runs_it_again_alone(tmp_path, capsys, monkeypatch):
    planned = [plan(TinyEngine("a")), plan(TinyEngine("b", "raise"))]
    status, folder, _ = sweep(tmp_path, planned)
    assert status == 1
    good, bad = folder.records()
    assert (good.status, bad.status) == (Status.OK, Status.FAILED)
    assert bad.reason == "answer raised the kernel is missing"
    assert len(bad.repetitions) == 1
    assert capsys.readouterr().out.count("the kernel is missing") >= 2

    monkeypatch.setattr("tests.faults.tiny_engine._break", lambda how: None)  # repaired
    status, again, log = sweep(tmp_path, planned, resume=True)
    assert status == 0
    assert again == folder
    assert {cell for cell, _ in log} == {bad.cell_id}
    assert [r.status for r in again.records()] == [Status.OK] * 2
    assert again.records()[0] == good


def test_a_damaged_cell_is_measured_again_on_resume_and_the_others_are_kept(tmp_path, capsys):
    planned = [plan(TinyEngine(label)) for label in "ab"]
    _, folder, _ = sweep(tmp_path, planned)
    damaged = planned[0].cell.cell_id
    path = folder.cell(damaged) / "repetition_001.jsonl"
    path.write_text(path.read_text()[:-20])
    capsys.readouterr()
    status, again, log = sweep(tmp_path, planned, resume=True)
    assert (status, again) == (0, folder)
    assert {cell for cell, _ in log} == {damaged}
    said = capsys.readouterr().out
    assert f"{path}: line 3: Invalid JSON" in said
    assert f"{planned[0].record.label} is measured again" in said
    assert [len(r.repetitions) for r in folder.records()] == [3, 3]


def test_a_sweep_whose_own_file_is_damaged_is_not_resumed(tmp_path, capsys):
    planned = [plan(TinyEngine("a"))]
    _, folder, _ = sweep(tmp_path, planned)
    (folder.path / "sweep.json").write_text("{")
    settings = make_settings(tmp_path, InlineLauncher(), resume=True)
    assert run_sweep(planned, settings, time.perf_counter()) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"{folder.path / 'sweep.json'}: Invalid JSON")
    assert said.endswith("measure again with resume=false")


def test_a_full_disk_is_one_line_and_resume_goes_on(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    planned = [plan(TinyEngine("a"))]
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.sweep.running_cell.save_repetition", full)
        status, folder, log = sweep(tmp_path, planned)
    assert status == 1
    assert capsys.readouterr().out.endswith(
        "No space left on device; make room, then resume=true\n"
    )
    assert log[-1] == (planned[0].cell.cell_id, "kill")
    status, again, _ = sweep(tmp_path, planned, resume=True)
    assert (status, again) == (0, folder)
    assert len(again.records()[0].repetitions) == 3


def test_an_impossible_cell_is_skipped_with_its_reason(tmp_path):
    planned = [plan(TinyEngine("a")), plan(TinyEngine("b"), impossible="engine.label=b: no")]
    status, folder, log = sweep(tmp_path, planned)
    assert status == 0
    skipped = folder.records()[1]
    assert (skipped.status, skipped.reason) == (Status.SKIPPED, "engine.label=b: no")
    assert skipped.cell_id not in {cell for cell, _ in log}


def test_a_cell_that_needs_more_gpus_than_there_are_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(TinyEngine, "num_gpus", lambda self, cell: 4, raising=False)
    launcher = InlineLauncher(num_gpus=2)
    settings = make_settings(tmp_path, launcher)
    assert run_sweep([plan(TinyEngine("a"))], settings, time.perf_counter()) == 2
    assert (
        "none-a × extend needs 4 GPUs and launcher.address=inline has 2" in capsys.readouterr().err
    )
    assert launcher.log == []


@pytest.mark.parametrize(
    ("asked", "reserved", "way"),
    [(1, 0, "or use engine.device=cpu\n"), (0, 2, "or set launcher.gpus_per_cell=0\n")],
)
def test_where_no_gpu_is_visible_a_smaller_grid_is_not_advised(
    asked, reserved, way, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(TinyEngine, "num_gpus", lambda self, cell: asked, raising=False)
    launcher = InlineLauncher(gpus_per_cell=reserved)
    settings = make_settings(tmp_path, launcher)
    assert run_sweep([plan(TinyEngine("a"))], settings, time.perf_counter()) == 2
    said = capsys.readouterr().err
    assert "none is visible at launcher.address=inline; run it on the GPU box" in said
    assert said.endswith(way)
    assert "lower" not in said
    assert launcher.log == []


def test_resume_on_another_machine_is_refused(tmp_path, capsys):
    planned = [plan(TinyEngine("a"))]
    _, folder, _ = sweep(tmp_path, planned)
    folder.note(provenance=folder.facts["provenance"] | {"cpu": "another"})
    settings = make_settings(tmp_path, InlineLauncher(), resume=True)
    assert run_sweep(planned, settings, time.perf_counter()) == 2
    assert "began on cpu=another" in capsys.readouterr().err


def test_resuming_another_grid_says_that_a_new_sweep_begins(tmp_path, capsys):
    sweep(tmp_path, [plan(TinyEngine("a"))])
    assert "resume=true" not in capsys.readouterr().out
    sweep(tmp_path, [plan(TinyEngine("b"))], resume=True)
    said = f"resume=true: {tmp_path} has no sweep of exactly these cells; a new one begins"
    assert said in capsys.readouterr().out.splitlines()


def test_commands_to_copy_survive_a_folder_with_a_space(tmp_path):
    uri = "sqlite:////my runs/mlflow.db"
    settings = make_settings(tmp_path, InlineLauncher(), tracking_uri=uri)
    assert f"--backend-store-uri '{uri}'," in settings.dashboard("/page")
    said = []
    sender = Sender(Tracker(_Away(), "1"), SweepFolder(tmp_path / "my sweep"), said.append)
    sender.begin()
    assert said[0].endswith(f"`python -m pipeline.track sync '{tmp_path}/my sweep'`")


class _Away:
    """A client of a server that is gone."""

    def search_runs(self, *_, **__):
        raise MlflowException("nobody there")


def test_mlflow_holds_what_the_disk_holds(tmp_path):
    planned = [plan(TinyEngine("b")), plan(TinyEngine("a", steps=30))]
    _, folder, _ = sweep(tmp_path, planned)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert load(uri, folder.sweep_id) == folder.read()
    for record in folder.records():
        assert set(record.seconds) == {"start", "warm_up", "measure", "orchestrate"}
    client = MlflowClient(uri)
    ids = [e.experiment_id for e in client.search_experiments()]
    (parent,) = client.search_runs(ids, "tags.kind = 'sweep'")
    children = client.search_runs(ids, f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    assert {c.data.tags["cell_id"] for c in children} == {p.cell.cell_id for p in planned}
    assert {c.data.tags["status"] for c in children} == {"ok"}
    child = next(c for c in children if c.data.params["engine.label"] == "a")
    assert child.data.metrics["tok_s"] == pytest.approx(500)  # a token per step of 2 ms
    assert len(client.get_metric_history(child.info.run_id, "repetition_tok_s")) == 3
    assert child.data.params["drafter"] == "none-a"
    assert child.inputs.dataset_inputs[0].dataset.name == "jsonl"
    names = {f.path for f in client.list_artifacts(child.info.run_id)}
    assert {"record.json", "repetition_002.jsonl", "proof.json", "command.txt"} <= names
    assert {f.path for f in client.list_artifacts(parent.info.run_id)} >= {
        "report.md",
        "sweep.json",
    }
    assert parent.data.metrics["best_tok_s"] == pytest.approx(500)


def test_the_last_line_leads_to_the_runs_and_not_to_the_traces_of_chat_models(tmp_path, capsys):
    sweep(tmp_path, [plan(TinyEngine("a"))])
    (mine,) = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db").search_experiments(
        filter_string="name != 'Default'"
    )
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("dashboard: mlflow ui ")
    assert last.endswith(f"/#/experiments/{mine.experiment_id}/runs?workflowType=machine_learning")
