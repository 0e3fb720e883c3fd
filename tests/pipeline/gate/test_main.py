"""The exit status: 1 is a regression and nothing else; the rest is one line and 2."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.gate import command
from pipeline.gate.__main__ import main
from pipeline.gate.command import Measured
from tests.pipeline.gate.small_versions import make_version
from tests.pipeline.gate.test_reference import sweep

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
BREAKS = [
    RuntimeError("the step\nwent wrong"),
    KeyError("token_embd.weight"),
    MemoryError(),
    RecursionError("maximum recursion depth exceeded"),
    OSError(errno.ENOSPC, "No space left on device"),
    ModuleNotFoundError("No module named 'boto3'"),
    AssertionError(),
    ValueError("operands could not be broadcast together"),  # raised by a library, not by us
    UnicodeDecodeError("utf-8", b"\x80", 0, 1, "invalid start byte"),
]


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """A folder for logs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SPECROI_DEBUG", raising=False)


@pytest.fixture
def breaking(monkeypatch):
    """Let the command raise."""

    def let(error):
        def raises(_):
            raise error

        monkeypatch.setattr(command, "run_side_by_side", raises)

    return let


@pytest.mark.parametrize("error", BREAKS, ids=lambda error: type(error).__name__)
def test_whatever_goes_wrong_is_one_line_with_the_place_of_its_traceback(breaking, capsys, error):
    breaking(error)
    assert main(["baseline=main"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"the gate broke off: {type(error).__name__}")
    (log,) = re.findall(r"traceback in (\S+),", line)
    assert "in raises" in Path(log).read_text()


def test_the_traceback_is_shown_where_it_is_asked_for(breaking, capsys, monkeypatch):
    monkeypatch.setenv("SPECROI_DEBUG", "1")
    breaking(RuntimeError("the step went wrong"))
    assert main(["baseline=main"]) == 2
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert said.splitlines()[-1].startswith("the gate broke off: RuntimeError")


def test_a_log_that_cannot_be_written_changes_no_status(breaking, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    breaking(RuntimeError("the step went wrong"))
    assert main(["baseline=main"]) == 2
    assert "no log could be written (No such file or directory)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "status"), [(1, 2), (2, 2), (0, 2), (None, 2), ("a library's last words", 2)]
)
def test_a_library_that_ends_the_process_ends_it_with_2(breaking, capsys, code, status):
    breaking(SystemExit(code))
    assert main(["baseline=main"]) == status
    assert capsys.readouterr().err == (f"{code}\n" if isinstance(code, str) else "")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(130)])
def test_a_gate_that_is_stopped_says_so_by_its_status(breaking, stop):
    breaking(stop)
    assert main(["baseline=main"]) == 130


def test_a_package_that_is_missing_or_broken_is_2_and_not_pythons_own_1(tmp_path):
    (tmp_path / "omegaconf.py").write_text("raise ImportError('built for another Python')\n")
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.gate", "baseline=main"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{root}", "TMPDIR": str(tmp_path)},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("the gate broke off: ImportError: built for another Python; traceback")


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A version under git with two commits."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    folder = make_version(tmp_path / "clone")
    run_git(folder, "init", "-q", "-b", "main")
    run_git(folder, "config", "uploadpack.allowFilter", "true")
    for slow in (1.1, 1.0):
        make_version(folder, slow=slow)
        run_git(folder, "add", ".")
        run_git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "Next")
    return folder


def run_git(folder, *words):
    subprocess.run(["git", "-C", str(folder), *words], check=True)


def test_a_checkout_of_another_owner_is_refused_before_anything_is_made(
    clone, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert main([f"candidate={clone}", "baseline=main", f"runs={tmp_path / 'runs'}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("baseline=main: fatal: detected dubious ownership in repository at")
    assert f"git config --global --add safe.directory {clone}" in line
    assert not (tmp_path / "runs").exists()


def test_a_clone_without_files_whose_remote_is_away_is_refused_and_no_regression(
    clone, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("SPECROI_CACHE", str(tmp_path / "cache"))
    blobless = tmp_path / "blobless"
    run_git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{clone}", str(blobless))
    clone.rename(tmp_path / "away")
    given = [f"candidate={blobless}", 'baseline="HEAD~1"', f"runs={tmp_path / 'runs'}"]
    assert main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("baseline=HEAD~1: fatal: ")
    assert "does not appear to be a git repository" in line


@pytest.fixture
def recorded(runs, tmp_path, monkeypatch):
    """Compare sweeps that are given with a reference in a file."""

    def run(records, *arguments):
        measured = Measured(tuple(records), "sweep")
        monkeypatch.setattr(command, "measure_grid", lambda *_: measured)
        places = [f"runs={runs}", f"gate.output={tmp_path / 'out'}", "gate.run_noise=0.002"]
        return main([*arguments, *places])

    assert run(sweep(), "gate.record=true", f"record_to={tmp_path / 'reference.json'}") == 0
    return run


@pytest.mark.parametrize(("verify_ms", "status"), [(16.2, 0), (17.2, 1)])
def test_a_verdict_stands_whatever_the_tracker_raises(
    recorded, tmp_path, monkeypatch, capsys, verify_ms, status
):
    def raises(*_):
        raise ModuleNotFoundError("No module named 'boto3'")

    monkeypatch.setattr(command, "log_outcome", raises)
    assert recorded(sweep(verify_ms), f"reference={tmp_path / 'reference.json'}") == status
    assert "not logged, no trend: ModuleNotFoundError: No module named 'boto3'" in (
        capsys.readouterr().out
    )


def test_a_recorded_file_is_there_though_the_tracker_fails_after_the_measurement(
    recorded, tmp_path, monkeypatch
):
    def raises(*_):
        raise ModuleNotFoundError("No module named 'boto3'")

    monkeypatch.setattr(command, "save_reference", raises)
    path = tmp_path / "another.json"
    assert recorded(sweep(), "gate.record=true", f"record_to={path}") == 2
    assert path.exists()


@pytest.mark.parametrize("mode", ["reference={}", "record_to={} gate.record=true"])
def test_a_damaged_file_is_refused_before_anything_is_measured(
    recorded, tmp_path, monkeypatch, capsys, mode
):
    path = tmp_path / "reference.json"
    path.write_bytes(path.read_bytes()[:200])
    monkeypatch.setattr(command, "measure_grid", lambda *_: pytest.fail("measured"))
    capsys.readouterr()
    assert main(mode.format(path).split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    setting = mode.partition("=")[0]
    assert line.startswith(f"{setting}={path}: not a recorded reference (Invalid JSON: EOF")
