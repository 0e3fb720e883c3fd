"""Kills what a dead process leaves: a process of its own that outlives its `kill -9`.

Every process of a sweep inherits one environment variable, so that servers in process groups of
their own and orphans of a killed worker are found as well. Standard library only: it starts in
milliseconds and sleeps until the other end of a pipe closes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

SWEEP_MARK = "SPECROI_SWEEP"  # in the environment of every process of a sweep
CELL_MARK = "SPECROI_CELL"  # in that of everything that a cell's worker starts
KEEP_ENVIRONMENT = "SPT_NOENV"  # Ray renames its processes; without this, over their environment
_ENDS: list[subprocess.Popen[bytes]] = []  # holds the pipes open for as long as we live
ROUNDS = 50  # a process that is being born while we look is found in a later round


def marked(mark: str) -> list[int]:
    """Return the user's processes with `NAME=value` in their environment, ours left out."""
    wanted = mark.encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            carries = wanted in (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # gone meanwhile, or another user's
            continue
        if carries and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def kill_marked(mark: str) -> None:
    """Kill every process that carries the mark, until none is left."""
    for _ in range(ROUNDS):
        pids = marked(mark)
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)


@contextlib.contextmanager
def reaping(sweep: str, lock: int) -> Iterator[None]:
    """Mark all processes that are started within, and let none of them outlive it.

    The reaper holds the machine's lock too, so that the next sweep starts on a clean machine.

    Args:
        sweep: The mark; unique.
        lock: File descriptor of the machine's lock.
    """
    reaper = _reaper(f"{SWEEP_MARK}={sweep}", pass_fds=(lock,))
    os.environ |= {SWEEP_MARK: sweep, KEEP_ENVIRONMENT: "1"}
    try:
        yield
    finally:
        del os.environ[SWEEP_MARK]
        reaper.communicate()


def leave_nothing(mark: str) -> None:
    """Let nothing that carries a mark outlive this process, not even its `kill -9`.

    A worker on another machine than the driver's needs one of its own: nobody else is there to
    find a server in a process group of its own.
    """
    _ENDS.append(_reaper(mark))


def _reaper(mark: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    """Start a process that kills what carries a mark when this one ends, or closes the pipe."""
    return subprocess.Popen(
        [sys.executable, "-S", "-E", __file__, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches the terminal's whole group; this must stay
        pass_fds=pass_fds,
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.buffer.read()  # returns when the other process is gone or closes its end
    kill_marked(sys.argv[1])
