"""What is killed when a driver ends."""

import os
import subprocess
import sys
import time
import uuid

import pytest

from pipeline.machine.reaper import CELL_MARK, SWEEP_MARK, kill_marked, marked, reaping

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
PATIENCE_S = 120.0  # only has to be long enough


@pytest.fixture
def sweep():
    """A sweep's name that no other run of these tests on this machine has."""
    return f"test-{uuid.uuid4().hex}"


def test_processes_that_outlive_a_sweep_are_killed_in_whatever_group_they_are(sweep):
    with reaping(sweep, os.open(os.devnull, os.O_RDONLY)):
        left = subprocess.Popen(SLEEP, start_new_session=True)
        grandchild = subprocess.Popen(["/bin/sh", "-c", "sleep 600 & wait"], start_new_session=True)
        assert left.pid in marked(f"{SWEEP_MARK}={sweep}")
    assert left.wait(PATIENCE_S) == -9
    assert grandchild.wait(PATIENCE_S) == -9
    assert marked(f"{SWEEP_MARK}={sweep}") == []
    assert SWEEP_MARK not in os.environ


WORKER = """
import os, subprocess, sys, time
from pipeline.machine.reaper import leave_nothing
os.environ["SPECROI_CELL"] = sys.argv[1]
leave_nothing(f"SPECROI_CELL={sys.argv[1]}")
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""


def test_a_killed_worker_leaves_no_server_though_nobody_looks_for_one(sweep):
    command = [sys.executable, "-c", WORKER, sweep]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
    mark = f"{CELL_MARK}={sweep}"
    assert len(marked(mark)) == 2  # the server and the reaper
    worker.kill()
    worker.communicate()
    deadline = time.monotonic() + PATIENCE_S
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(mark) == []


def test_only_the_named_mark_is_killed(sweep):
    other = subprocess.Popen(SLEEP, env={SWEEP_MARK: f"{sweep}-other"})
    kill_marked(f"{SWEEP_MARK}={sweep}")
    with pytest.raises(subprocess.TimeoutExpired, match="timed out"):
        other.wait(0.1)
    kill_marked(f"{SWEEP_MARK}={sweep}-other")
    assert other.wait(PATIENCE_S) == -9
