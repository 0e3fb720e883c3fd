"""The tracker: what is lost on the way is sent later, once."""

import shutil

import pytest
from mlflow import MlflowClient

from pipeline.record.record import Status, save_record, save_repetition
from pipeline.record.sweep_folder import SweepFolder, create_sweep
from pipeline.track import Tracker, TrackerAway, load
from pipeline.track.__main__ import main
from pipeline.track.sender import Sender
from tests.pipeline.synthetic import make_sweep

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@pytest.fixture
def folder(tmp_path):
    """A finished sweep on disk that MLflow knows nothing of."""
    records = make_sweep(prompts_per_class=2, repetitions=2)
    for record in records:
        record.params["prompts_digest"] = "abc"
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    folder = create_sweep(
        tmp_path,
        [r.cell_id for r in records],
        provenance={"cpu": "x"},
        settings={"command": "python -m pipeline"},
        tracking={"uri": uri, "experiment": "tests", "runs": str(tmp_path)},
        ended="FINISHED",
    )
    for record in records:
        save_record(record, folder.cell(record.cell_id))
        for number, responses in enumerate(record.repetitions):
            save_repetition(responses, number, folder.cell(record.cell_id))
    return folder


def runs_of(uri):
    client = MlflowClient(uri)
    return client.search_runs([e.experiment_id for e in client.search_experiments()])


def test_what_was_lost_is_one_warning_and_sync_sends_it_once(folder, tmp_path, capsys):
    said = []
    where = folder.facts["tracking"]
    sender = Sender(Tracker.open(where["uri"], "tests", tmp_path), folder, said.append)
    sender.begin()
    sender.cell(folder.records()[0])
    assert said == []
    (tmp_path / "mlflow.db").write_bytes(b"gone")
    for record in folder.records()[1:]:
        sender.cell(record)
    sender.finish("FINISHED")
    assert len(said) == 1
    assert f"`python -m pipeline.track sync {folder.path}`" in said[0]

    other = f"sqlite:///{tmp_path}/other.db"
    assert main(["sync", str(folder.path), "--uri", other]) == 0
    assert capsys.readouterr().out == f"{folder.sweep_id}: in {other}\n"
    first = runs_of(other)
    assert load(other, folder.sweep_id) == folder.read()
    assert main(["sync", str(folder.path), "--uri", other]) == 0
    second = runs_of(other)
    assert {r.info.run_id for r in first} == {r.info.run_id for r in second}
    assert len(second) == 1 + len(folder.records())


def test_a_damaged_sweep_is_refused_in_a_line_and_nothing_of_it_is_sent(folder, capsys):
    record = next(folder.path.glob("cells/*/record.json"))
    whole = record.read_text()
    record.write_text(whole[:100])
    assert main(["sync", str(folder.path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{record}: Invalid JSON: EOF")
    assert len(said.splitlines()) == 1
    assert runs_of(folder.facts["tracking"]["uri"]) == []


def test_a_cell_that_arrived_in_part_is_named_by_its_run_and_costs_no_other(folder, tmp_path):
    uri = folder.facts["tracking"]["uri"]
    Tracker.open(uri, "tests", tmp_path).finish(folder, "FINISHED")
    run = next(r for r in runs_of(uri) if r.data.tags.get("position") == "1")
    next(tmp_path.glob(f"mlartifacts/**/{run.info.run_id}/artifacts/record.json")).write_text("")
    records, damaged = load(uri, folder.sweep_id)
    first, _, *rest = folder.records()
    assert records == [first, *rest]
    assert damaged == [
        f"run {run.info.run_id}/record.json: is empty;"
        " send it again with `python -m pipeline.track sync`"
    ]


def test_a_sweep_that_was_not_tracked_says_so(tmp_path, capsys):
    sweep = create_sweep(tmp_path, ["a"])
    assert main(["sync", str(sweep.path)]) == 2
    assert "sweep.json: tracking is missing" in capsys.readouterr().err


def test_the_parent_names_the_best_cell_and_says_the_verdict(folder, tmp_path):
    where = folder.facts["tracking"]
    Tracker.open(where["uri"], "tests", tmp_path).finish(folder, "FINISHED")
    (parent,) = (r for r in runs_of(where["uri"]) if r.data.tags["kind"] == "sweep")
    assert parent.data.tags["best_baseline"].startswith("none × ")
    assert parent.data.metrics["best_tok_s"] >= parent.data.metrics["best_baseline_tok_s"]
    assert parent.data.tags["mlflow.note.content"]
    assert parent.data.params["cpu"] == "x"
    children = [r for r in runs_of(where["uri"]) if r.data.tags["kind"] == "cell"]
    assert all(child.data.tags["status"] == Status.OK for child in children)
    assert all("speed_up_low" in child.data.metrics for child in children)


def test_a_store_that_cannot_be_opened_is_refused_naming_the_setting(tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    with pytest.raises(ValueError, match=r"^tracking.uri=sqlite:.*: cannot be opened \("):
        Tracker.open(f"sqlite:///{file}/x.db", "tests", tmp_path)
    with pytest.raises(ValueError, match=r"^tracking.uri=nonsense://\*\*\*@host: cannot be opened"):
        Tracker.open("nonsense://me:secret@host", "tests", tmp_path)


def test_an_unknown_sweep_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^sweep=none: tracking.uri=.* has no such sweep"):
        load(f"sqlite:///{tmp_path}/mlflow.db", "none")


def test_a_folder_that_is_no_sweep_is_refused(tmp_path, capsys):
    assert main(["sync", str(tmp_path)]) == 2
    assert "no sweep.json there" in capsys.readouterr().err


def test_a_store_that_goes_away_is_one_line_and_no_page_of_traces(tmp_path, empty_store, capsys):
    shutil.copy(empty_store, tmp_path)
    store = tmp_path / "mlflow.db"
    tracker = Tracker.open(f"sqlite:///{store}", "tests", tmp_path)
    store.unlink()
    store.mkdir()  # no file can be opened there, whoever asks
    tracker.client._tracking_client.store.engine.dispose()
    with pytest.raises(TrackerAway, match=r"^[^\n]*unable to open database file[^\n]*$"):
        tracker.begin(SweepFolder(tmp_path / "sweep"))
    assert capsys.readouterr().err == ""


def test_the_pages_of_all_runs_are_named_the_newest_first_wherever_they_were_logged(
    tmp_path, empty_store, capsys
):
    shutil.copy(empty_store, tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    where = ["pages", "--uri", uri, "--port", "5001"]
    assert main(where) == 0
    assert capsys.readouterr().out == "nothing is measured yet: http://127.0.0.1:5001\n"
    trackers = [Tracker.open(uri, name, tmp_path) for name in ("a", "last", "b", "unused")]
    for start, tracker in zip((100, 300, 200), trackers[:3], strict=True):
        tracker.client.create_run(tracker.experiment_id, start_time=start)
    assert main(where) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["last", "b", "a"]
    assert lines[0] == f"last: http://127.0.0.1:5001{trackers[1].page}"


def test_a_store_whose_pages_cannot_be_read_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mlflow.store.db.utils.MAX_RETRY_COUNT", 1)  # each waits twice as long
    (tmp_path / "mlflow.db").mkdir()
    assert main(["pages", "--uri", f"sqlite:///{tmp_path}/mlflow.db"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
