"""One cell in its own process."""

import pickle
import subprocess
import sys

import pytest

from pipeline.sweep.cell_process import CellProcess
from tests.faults.tiny_engine import TinyEngine, plan


def start(engine, environment=None):
    planned = plan(engine)
    run = CellProcess(environment or {})
    run.start(pickle.dumps(planned.cell), pickle.dumps(planned.prompts))
    return run


def test_phases_give_settings_responses_in_order_and_a_proof_that_counts(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    run = start(TinyEngine("a"), {"OMP_WAIT_POLICY": "passive"})
    try:
        assert run.warm_up().settings["wait_policy"] == "passive"
        first, second = run.answer(0, 0, 3), run.answer(1, 0, 3)
    finally:
        run.stop()
        monkeypatch.delenv("OMP_WAIT_POLICY")
    assert [r.prompt_id for r in first.responses] == ["p0", "p1", "p2"]
    assert (first.proof.num_verify_steps, second.proof.num_verify_steps) == (60, 120)


def test_stopping_twice_does_no_harm():
    run = start(TinyEngine("a"))
    run.stop()
    run.stop()
    with pytest.raises(RuntimeError, match="was not started"):
        run.answer(0, 0, 1)


def test_nothing_heavy_is_imported_before_the_environment_is_set():
    code = (
        "import sys, pipeline.sweep.cell_process;"
        " print(sorted({'torch', 'numpy', 'ray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_crash_in_c_and_the_words_of_children_are_in_the_log(tmp_path):
    code = (
        "import ctypes, subprocess; from pathlib import Path\n"
        "from pipeline.sweep.cell_process import CellProcess\n"
        f"CellProcess({{}}, Path({str(tmp_path / 'cell' / 'worker.log')!r}))\n"
        "subprocess.run(['/bin/echo', 'server ready']); print('ready'); ctypes.string_at(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -11
    log = (tmp_path / "cell" / "worker.log").read_text()
    assert log.startswith("server ready\nready\nFatal Python error: Segmentation fault")
