"""Drive a version's process: send requests, read answers, notice its death."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from pipeline.gate.versions import child
from pipeline.gate.versions.checkout import Tree
from pipeline.machine.reaper import CELL_MARK, kill_marked
from pipeline.sweep.ray_launcher import QUIET
from pipeline.sweep.running_cell import tail

CHUNK = 1 << 16


class SideFailed(Exception):
    """A version's process raised, died, hung or sent what cannot be read; the text is one line."""


class Side:
    """The process of one version; it sleeps between requests, when the cores are the other one's.

    Attributes:
        tree: The version.
        log: File with the output of its process.
    """

    def __init__(self, tree: Tree, python: str, cache: Path, mark: str, log: Path) -> None:
        """Start the process; it loads the version's code by itself.

        Args:
            tree: The version.
            python: Its interpreter.
            cache: Its cache folder.
            mark: Unique text that its own children inherit.
            log: File for its output.
        """
        self.tree, self.log, self._mark = tree, log, mark
        self._read = b""
        threads = os.environ.get("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        environment = QUIET | {"OMP_NUM_THREADS": threads, CELL_MARK: mark}
        environment |= {"PYTHONPATH": str(tree.path), "SPECROI_CACHE": str(cache)}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [python, "-P", child.__file__, str(tree.path)],
                cwd=tree.path,
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C is the driver's to handle
            )

    def begin(self, do: str, **arguments: Any) -> None:
        """Send a request: a method of `child.Cells` and its arguments.

        Raises:
            SideFailed: The process is dead.
        """
        assert self._process.stdin is not None
        request = json.dumps({"do": do, **arguments}) + "\n"
        try:
            self._process.stdin.write(request.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure(do) from None

    def result(self, do: str, timeout_s: float) -> Any:
        """Wait for the answer.

        Raises:
            SideFailed: It raised, died, did not answer in time, or answered what is not JSON.
        """
        assert self._process.stdout is not None
        pipe, end = self._process.stdout.fileno(), time.monotonic() + timeout_s
        while b"\n" not in self._read:
            if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
                raise SideFailed(f"{self.tree}: {do} did not finish within {timeout_s:g} s")
            chunk = os.read(pipe, CHUNK)
            if not chunk:
                raise self._failure(do)
            self._read += chunk
        line, _, self._read = self._read.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            raise SideFailed(f"{self.tree}: {do}: the answer is not JSON; see {self.log}") from None

    def ask(self, do: str, timeout_s: float, **arguments: Any) -> Any:
        """Send a request and wait for its answer.

        Raises:
            SideFailed: As `begin` and `result`.
        """
        self.begin(do, **arguments)
        return self.result(do, timeout_s)

    def kill(self) -> None:
        """Kill the process and all that it started."""
        self._process.kill()
        self._process.communicate()
        kill_marked(f"{CELL_MARK}={self._mark}")

    def _failure(self, do: str) -> SideFailed:
        """Return the reason of a dead process: the last line of its log, or its signal."""
        status = self._process.wait()
        if status < 0:
            return SideFailed(f"{self.tree}: {do}: killed by {signal.Signals(-status).name}")
        last = next((x for x in reversed(tail(self.log).splitlines()) if x.strip()), "no message")
        return SideFailed(f"{self.tree}: {do}: {last.strip()}")
