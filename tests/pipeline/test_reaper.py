"""What is killed when a driver ends."""

import os
import subprocess
import sys

import pytest

from pipeline.reaper import SWEEP_MARK, kill_marked, marked, reaping

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


def test_only_the_named_mark_is_killed():
    other = subprocess.Popen(SLEEP, env={SWEEP_MARK: "other"})
    kill_marked(f"{SWEEP_MARK}=test-2")
    with pytest.raises(subprocess.TimeoutExpired, match="timed out"):
        other.wait(0.1)
    kill_marked(f"{SWEEP_MARK}=other")
    assert other.wait(5) == -9
