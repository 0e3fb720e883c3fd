"""Drivers as processes of their own, and a look at what they leave behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.machine.reaper import marked
from pipeline.record.record import CellRecord
from pipeline.record.sweep_folder import SweepFolder

HERE = Path(__file__).parent
# A shell's background job ignores Ctrl-C, and so would all drivers started from it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
PATIENCE_S = 300.0  # a wait that fails is a failed test, so this only has to be long enough


class Bench:
    """One machine for a test: its own runs folder and gate."""

    def __init__(self, place: Path, temporary: str) -> None:
        self.runs, self.gate = place / "runs", place / "gate"
        self.gate.mkdir()
        self.mark = f"SPECROI_TEST={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        self.environment = os.environ | {
            "PYTHONPATH": f"{HERE}:{HERE.parents[1]}",
            "TMPDIR": temporary,
            "SPT_NOENV": "1",
            name: value,
        }

    def drive(self, cells: str, **settings: object) -> subprocess.Popen[str]:
        """Start a driver; `settings` as in drive.py."""
        given = [f"{k}={v}" for k, v in ({"gate": self.gate} | settings).items()]
        return subprocess.Popen(
            [sys.executable, str(HERE / "drive.py"), str(self.runs), cells, *given],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def left(self) -> list[int]:
        """Return all live processes that any driver of this test has started, itself included."""
        return marked(self.mark)

    @staticmethod
    def until(ready: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        """Wait for something to become true."""
        end = time.monotonic() + patience_s
        while not ready():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.05)

    def sweep(self) -> SweepFolder:
        """Return the only sweep there is."""
        (path,) = (self.runs / "sweeps").iterdir()
        return SweepFolder(path)

    def records(self) -> dict[str, CellRecord]:
        """Return the records by the cell's label."""
        return {r.params["engine.label"]: r for r in self.sweep().records()}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    temporary = tempfile.mkdtemp(prefix="sr", dir="/tmp")  # Ray's socket paths must be short
    bench = Bench(tmp_path, temporary)
    yield bench
    for pid in bench.left():  # only of a failed test
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(temporary, ignore_errors=True)
