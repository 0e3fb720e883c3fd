"""The command line: exit statuses and one-line refusals."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments, cwd=ROOT, **environment):
    """Run the command line in a process of its own."""
    command = [sys.executable, "-W", "error", "-m", "pipeline", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["drafter=nope"], "Could not find 'drafter/nope' Available options in 'drafter': "),
        (["runs=/proc/nowhere"], "runs: /proc/nowhere: No such file or directory; choose"),
    ],
)
def test_what_hydra_cannot_compose_is_one_line_and_status_2(arguments, line, tmp_path):
    done = run(f"runs={tmp_path}", *arguments)
    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_a_class_refuses_is_one_line_and_status_2(tmp_path):
    done = run(f"runs={tmp_path}", "drafter=none,ngram", "measurement.max_repetitions=0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "measurement.max_repetitions=0: must be a number above 0\n"


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("measurement.max_repetitions=4,8", "measurement.max_repetitions=4,8: one value for all"),
        ("tracking.uri=5", "tracking.uri=5: must be a text"),
        ("tracking.experiment=null", "tracking.experiment=null: must be a text"),
        ("+measurement.x=ü", "; write NAME=VALUE, and quotes around a value that has more than"),
    ],
)
def test_what_a_sweep_cannot_take_is_one_line_and_status_2(override, line, tmp_path):
    done = run(f"runs={tmp_path}", "drafter=none,ngram", override)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "sweeps").exists()


def test_a_folder_whose_store_would_be_another_file_is_refused(tmp_path):
    done = run(f'runs="{tmp_path}/a%20b"')
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"runs={tmp_path}/a%20b: % and ? mean something in the address")


@pytest.mark.parametrize("value", ["null", "", "5", '"a%20b"', '"~nobody-of-this-name/x"'])
def test_what_is_no_folder_of_runs_leaves_none_behind(value, tmp_path):
    done = run(f"runs={value}", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("runs=")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_home_folder_in_the_folder_of_runs_is_spelled_out_for_hydra_too(tmp_path):
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    done = run('runs="~/x"', "measurement.max_repetitions=0", cwd=here, HOME=str(home))
    assert done.stderr.startswith("measurement.max_repetitions=0")
    assert (home / "x/hydra/multirun.yaml").is_file()
    assert list(here.iterdir()) == []
