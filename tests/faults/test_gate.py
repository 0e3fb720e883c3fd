"""A gate that is killed or interrupted in the middle: no process of either version is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.faults.conftest import PATIENCE_S
from tests.pipeline.gate.small_versions import make_version

pytestmark = pytest.mark.faults


@pytest.fixture
def hanging(bench, tmp_path):
    """A gate whose candidate has stopped answering in the middle of a round."""
    mark = tmp_path / "hangs"
    ours = make_version(tmp_path / "ours", breaks="hang", mark=str(mark))
    theirs = make_version(tmp_path / "theirs")
    command = [sys.executable, "-m", "pipeline.gate", f"candidate={ours}", f"baseline={theirs}"]
    driver = subprocess.Popen(
        [*command, f"runs={bench.runs}"],
        env=bench.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    bench.until(lambda: mark.exists() or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()[0]
    yield driver
    with driver:  # closes its pipe and waits
        driver.kill()


def test_a_killed_gate_leaves_no_process(bench, hanging):
    assert len(bench.left()) >= 3  # the driver and two versions
    os.kill(hanging.pid, signal.SIGKILL)
    hanging.wait()
    bench.until(lambda: bench.left() == [])


def test_control_c_ends_both_versions_and_says_nothing_of_them(bench, hanging):
    os.killpg(hanging.pid, signal.SIGINT)
    assert hanging.wait(PATIENCE_S) == 130
    assert "Traceback" not in hanging.stdout.read()
    assert bench.left() == []


def test_a_second_gate_waits_its_turn_or_is_refused(bench, hanging, tmp_path):
    folder = tmp_path / "theirs"
    command = [sys.executable, "-m", "pipeline.gate", f"candidate={folder}", f"baseline={folder}"]
    second = subprocess.run(
        [*command, f"runs={bench.runs}"],
        env=bench.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 2
    assert f"pid {hanging.pid}, gate into" in second.stderr
    assert "launcher.on_busy=wait" in second.stderr
