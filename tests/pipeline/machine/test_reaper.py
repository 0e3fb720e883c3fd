"""What is killed when a driver ends."""

import os
import subprocess
import sys
import time

import pytest

from pipeline.machine.reaper import CELL_MARK, SWEEP_MARK, kill_marked, marked, reaping

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


def test_processes_that_outlive_a_sweep_are_killed_in_whatever_group_they_are():
    with reaping("test-1", os.open(os.devnull, os.O_RDONLY)):
        left = subprocess.Popen(SLEEP, start_new_session=True)
        grandchild = subprocess.Popen(["/bin/sh", "-c", "sleep 60 & wait"], start_new_session=True)
        assert left.pid in marked(f"{SWEEP_MARK}=test-1")
    assert left.wait(5) == -9
    assert grandchild.wait(5) == -9
    assert marked(f"{SWEEP_MARK}=test-1") == []
    assert SWEEP_MARK not in os.environ


WORKER = """
import os, subprocess, sys, time
from pipeline.machine.reaper import leave_nothing
os.environ["SPECROI_CELL"] = "test-3"
leave_nothing("SPECROI_CELL=test-3")
subprocess.Popen(["sleep", "60"], start_new_session=True)
print("ready", flush=True)
time.sleep(60)
"""


def test_a_killed_worker_leaves_no_server_though_nobody_looks_for_one():
    worker = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    assert worker.stdout.readline() == b"ready\n"
    mark = f"{CELL_MARK}=test-3"
    assert len(marked(mark)) == 2  # the server and the reaper
    worker.kill()
    worker.communicate()
    deadline = time.monotonic() + 10
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(mark) == []


def test_only_the_named_mark_is_killed():
    other = subprocess.Popen(SLEEP, env={SWEEP_MARK: "other"})
    kill_marked(f"{SWEEP_MARK}=test-2")
    with pytest.raises(subprocess.TimeoutExpired, match="timed out"):
        other.wait(0.1)
    kill_marked(f"{SWEEP_MARK}=other")
    assert other.wait(5) == -9
