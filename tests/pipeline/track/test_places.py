"""A place that a store remembers is compared with the one in use; no error costs a measurement."""

import shutil
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from mlflow import MlflowClient

from pipeline.record.record import Status
from pipeline.record.sweep_folder import SweepFolder
from pipeline.sweep.launch import run_sweep
from pipeline.track import Tracker, TrackerAway, answering
from pipeline.track.__main__ import main
from pipeline.track.places import check_writable
from tests.faults.tiny_engine import TinyEngine, plan
from tests.pipeline.inline import InlineLauncher, make_settings

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@pytest.fixture
def runs(tmp_path, empty_store):
    folder = tmp_path / "A"
    folder.mkdir()
    shutil.copy(empty_store, folder)
    return folder


def uri(folder):
    return f"sqlite:///{folder}/mlflow.db"


def experiment(folder, location):
    return MlflowClient(uri(folder)).create_experiment("tests", artifact_location=location)


def sweep(folder, labels="a"):
    settings = make_settings(folder, InlineLauncher())
    return run_sweep([plan(TinyEngine(label)) for label in labels], settings, time.perf_counter())


@pytest.mark.parametrize(
    ("location", "cause"),
    [
        ("s3://nobucket/x", "needs the library boto3"),
        ("gs://nobucket/x", "needs the library google.cloud.storage"),
        ("nonsense://place/x", "Could not find a registered artifact repository"),
        ("{file}/below", "is no folder"),
    ],
)
def test_a_sweep_outlives_an_artifact_store_that_it_cannot_write(
    runs, tmp_path, capsys, location, cause
):
    (tmp_path / "file").write_text("no folder")
    location = location.format(file=(tmp_path / "file"))
    with pytest.raises(TrackerAway, match=cause):
        check_writable(location, uri(runs))
    if location.startswith(("s3", "nonsense")):
        experiment(runs, location)
        assert sweep(runs, "ab") == 0
        assert capsys.readouterr().out.count("MLflow is away (") == 1
        (folder,) = (runs / "sweeps").iterdir()
        assert [r.status for r in SweepFolder(folder).records()] == [Status.OK] * 2
        assert (folder / "report.md").is_file()
        assert main(["sync", str(folder)]) == 2
        said = capsys.readouterr().err
        assert cause in said
        assert said.count("\n") == 1


def test_places_that_can_be_written_are_taken(tmp_path):
    for location in ((tmp_path / "new").as_uri(), str(tmp_path), "mlflow-artifacts:/1"):
        check_writable(location, uri(tmp_path))
    with pytest.raises(TrackerAway, match="a folder of the server's machine"):
        check_writable("/srv/no/such", "http://127.0.0.1:5000")


def test_a_deleted_experiment_is_refused_at_opening_with_the_ways_out(runs, capsys):
    number = experiment(runs, None)
    MlflowClient(uri(runs)).delete_experiment(number)
    assert sweep(runs) == 2
    said = capsys.readouterr().err
    assert "that experiment is deleted; restore it" in said
    assert "tracking.experiment=NAME" in said
    assert not (runs / "sweeps").exists()


def test_a_moved_folder_of_runs_is_refused_and_does_not_come_back(runs, tmp_path, capsys):
    assert sweep(runs) == 0
    (folder,) = (runs / "sweeps").iterdir()
    copy, moved = tmp_path / "C", tmp_path / "B"
    shutil.copytree(runs / "sweeps", copy / "sweeps")
    runs.rename(moved)
    capsys.readouterr()

    assert main(["sync", str(copy / "sweeps" / folder.name)]) == 2
    assert "--uri" in capsys.readouterr().err
    assert sweep(moved) == 2
    assert f"kept in {runs}/mlartifacts" in capsys.readouterr().err
    assert main(["sync", str(copy / "sweeps" / folder.name), "--uri", uri(moved)]) == 2
    assert not runs.exists()

    assert sorted(p.name for p in (moved / "sweeps").iterdir()) == [folder.name]
    tracker = Tracker.open(uri(moved), "tests_2", moved)
    assert tracker.location == (moved / "mlartifacts").as_uri()
    runs.mkdir()
    (runs / "mlartifacts").mkdir()  # of another project: still not the place in use
    with pytest.raises(ValueError, match=r"not in runs=.*move it back"):
        Tracker.open(uri(moved), "tests", moved)
    assert list((runs / "mlartifacts").iterdir()) == []


@pytest.mark.parametrize(
    ("revision", "way_out"), [("0123456789ab", "another version of MLflow"), (None, "cannot be")]
)
def test_a_store_of_another_version_is_refused_in_one_line(runs, revision, way_out):
    with sqlite3.connect(runs / "mlflow.db") as store:
        if revision:
            store.execute("UPDATE alembic_version SET version_num = ?", (revision,))
        else:
            store.execute("DROP TABLE experiments")
    with pytest.raises(ValueError, match=way_out) as refusal:
        Tracker.open(uri(runs), "tests", runs)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("error", [KeyError("x"), ModuleNotFoundError("No module named 'boto3'"),
                                   RuntimeError("page\nof text"), AttributeError("y")])  # fmt: skip
def test_any_error_of_a_library_is_one_line(error):
    with pytest.raises(TrackerAway, match=f"^{type(error).__name__}: [^\n]*$"), answering():
        raise error


@pytest.mark.parametrize(
    ("status", "body"),
    [(401, "<html>\n<p>Sign in</p></html>"), (404, "not here"), (200, "<html>\nHello</html>"),
     (200, "{}")],
)  # fmt: skip
def test_a_server_that_is_no_tracking_server_is_refused_in_one_line(tmp_path, status, body):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        do_POST = do_GET

        def log_message(self, *_):
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://me:secret@127.0.0.1:{server.server_port}"
        try:
            with pytest.raises(
                ValueError, match=r"^tracking.uri=.*: cannot be opened \("
            ) as refusal:
                Tracker.open(address, "tests", tmp_path)
        finally:
            server.shutdown()
    assert "\n" not in str(refusal.value)
    assert "secret" not in str(refusal.value)
