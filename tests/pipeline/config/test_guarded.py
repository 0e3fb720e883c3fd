"""What nobody foresaw is one line that names a log; SPECROI_DEBUG shows the traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.messages import guarded

ROOT = Path(__file__).parents[3]
COMMANDS = {
    "pipeline": ["hydra._internal.utils.run_and_report", "dry_run=true"],
    "pipeline.report": ["pipeline.report.__main__._parse", "sweep=x"],
    "pipeline.roi": ["pipeline.roi.__main__._answer", "sweep=x"],
    "pipeline.track": ["pipeline.track.__main__.pages", "pages"],
    "pipeline.target": ["pipeline.target.__main__.cache_root", "prepare"],
    "drafters.vocab": ["drafters.vocab.__main__.read_stored", "audit", "a", "b"],
    "drafters.eagle3.data": ["drafters.eagle3.data.__main__.run_config"],
    "drafters.eagle3.train": ["drafters.eagle3.train.__main__.run_config"],
}


def raising(error):
    def work():
        raise error

    return work


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """The folder of temporary files, alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_bug_is_one_line_that_names_its_log_and_asks_for_a_report(logs, capsys):
    assert guarded("specroi", raising(KeyError("d2t"))) == 2
    said = capsys.readouterr().err
    (log,) = logs.iterdir()
    assert said == (
        "specroi broke off: KeyError: 'd2t'; this is a bug in specroi: please report it with the"
        f" traceback in {log} (SPECROI_DEBUG=1 shows it)\n"
    )
    assert "in raising" not in said
    assert "in work\n    raise error\nKeyError: 'd2t'" in log.read_text()


def test_the_traceback_is_shown_where_debugging_is_asked_for(logs, capsys, monkeypatch):
    monkeypatch.setenv("SPECROI_DEBUG", "1")
    assert guarded("specroi", raising(RuntimeError("x"))) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert said.splitlines()[-1].startswith("specroi broke off: RuntimeError: x; ")


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file or directory", "/runs/x"),
        ModuleNotFoundError("No module named 'boto3'"),
        MemoryError(),
        ConnectionResetError(104, "reset"),
        BrokenPipeError(32, "Broken pipe"),
    ],
)
def test_what_the_machine_lacks_is_no_bug_of_ours(logs, capsys, error):
    assert guarded("specroi", raising(error)) == 2
    said = capsys.readouterr().err
    assert type(error).__name__ in said
    assert "bug" not in said
    assert said.count("\n") == 1


def test_a_message_of_several_lines_and_a_secret_in_it_are_one_line_without_it(logs, capsys):
    error = RuntimeError("cannot reach\n\n  http://me:hunter2@host/x\n(Background: …)")
    assert guarded("specroi", raising(error)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "http://***@host/x (Background" in said
    assert all("hunter2" not in log.read_text() for log in logs.iterdir())


def test_a_full_disk_that_takes_no_log_is_said(monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    assert guarded("specroi", raising(KeyError("x"))) == 2
    assert "no log could be written: No space left on device" in capsys.readouterr().err


def test_statuses_that_a_command_gives_itself_stay():
    assert guarded("specroi", lambda: None) == 0
    assert guarded("specroi", lambda: 1) == 1
    assert guarded("specroi", raising(KeyboardInterrupt())) == 130
    with pytest.raises(SystemExit, match="7"):
        guarded("specroi", raising(SystemExit(7)))


@pytest.mark.parametrize("module", COMMANDS)
def test_every_command_goes_through_the_door(tmp_path, module):
    broken, *arguments = COMMANDS[module]
    place, _, name = broken.rpartition(".")
    code = (
        f"import sys, {place} as place, {module}.__main__ as main\n"
        "def broken(*a, **k): raise ZeroDivisionError('nobody foresaw it')\n"
        f"place.{name} = broken; sys.argv = {[module, *arguments]!r}\n"
        "text = open(main.__file__).read(); text = text[text.index('if __name__') :]\n"
        "exec(text, vars(main) | {'__name__': '__main__'})\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert re.fullmatch(
        r".* broke off: ZeroDivisionError: nobody foresaw it; this is a bug .*specroi-\w+\.log.*\n",
        done.stderr,
    )


def test_a_reader_that_leaves_is_no_error(tmp_path):
    code = (
        "import sys; from pipeline.config.messages import guarded\n"
        "def work():\n    for _ in range(100000): sys.stdout.write('x' * 99 + '\\n')\n"
        "sys.exit(guarded('specroi', work))"
    )
    script = '"$PYTHON" -c "$CODE" | head -1; echo "status ${PIPESTATUS[0]}"'
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CODE": code, "PYTHON": sys.executable}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[1] == "status 141"
