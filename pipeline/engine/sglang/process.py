"""A process at the head of a group of its own, with all that it starts; none outlives its end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

KILL_S = 20.0
TRACKER_S = 5.0
POLL_S = 0.02


class ProcessGroup:
    """A running command and its descendants.

    Attributes:
        members: Its processes, as far as they have been seen.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start the command.

        Args:
            command: Program and arguments.
            environment: Put over this process's own.
            log: File for all that it prints.
        """
        self.members: list[psutil.Process] = []
        self._watched: dict[psutil.Process, str] = {}
        self._gone = False
        with log.open("wb") as file:
            self._head = subprocess.Popen(
                command,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def status(self) -> int | None:
        """The head's exit status, None while it runs."""
        return self._head.poll()

    def look(self) -> None:
        """Note the members while their parents are there: an orphan could not be found again."""
        with contextlib.suppress(psutil.NoSuchProcess):
            head = psutil.Process(self._head.pid)
            known = {process.pid for process in self.members}
            found = [head, *head.children(recursive=True)]
            self.members += [process for process in found if process.pid not in known]

    def watch(self, prefix: str) -> None:
        """Note the members whose names begin like this: none of them may go before the end."""
        self.look()
        named = {process: _title(process) for process in self.members}
        self._watched = {p: title for p, title in named.items() if title.startswith(prefix)}

    @property
    def lost(self) -> str:
        """Name and id of a watched member that is gone, "" if none is."""
        gone = (p for p in self._watched if not _is_alive(p))
        return next((f"{self._watched[process]} (pid {process.pid})" for process in gone), "")

    def listens(self, port: int) -> bool:
        """Whether a member listens at a port."""
        self.look()
        return any(_listens(process, port) for process in self.members)

    def end(self, grace_s: float) -> None:
        """Ask the head to end, then kill whatever is left of the group; once.

        Shared memory outlives those that are killed, and its trackers free it once they are gone.

        Args:
            grace_s: From asking to killing.

        Raises:
            RuntimeError: A process cannot be killed.
        """
        if self._gone:
            return
        self.look()
        if self.status is None:
            self._signal(signal.SIGCONT)  # a stopped process would not see the next one
            self._head.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._head.wait(grace_s)
        trackers = [process for process in self.members if _is_tracker(process)]
        _kill(process for process in self.members if process not in trackers)
        _wait(trackers, TRACKER_S)
        self._signal(signal.SIGKILL)
        _kill(self.members)
        self._head.wait(KILL_S)
        if alive := _wait(self.members, KILL_S):
            raise RuntimeError(f"processes of the server cannot be killed: {alive}")
        self._gone = True

    def _signal(self, number: signal.Signals) -> None:
        """Signal the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._head.pid, number)


def _is_alive(process: psutil.Process) -> bool:
    """Whether a process still holds anything; a zombie only waits for its parent."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _title(process: psutil.Process) -> str:
    """Return what a process calls itself, "" if it is gone."""
    return next(iter(_command(process)), "")


def _is_tracker(process: psutil.Process) -> bool:
    """Whether it is what Python starts to unlink the shared memory of processes that died."""
    return any("multiprocessing.resource_tracker" in word for word in _command(process))


def _command(process: psutil.Process) -> list[str]:
    """Return a process's command, [] if it is gone."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _wait(processes: Sequence[psutil.Process], longest_s: float) -> list[psutil.Process]:
    """Wait until all are gone; return those that are not."""
    deadline = time.monotonic() + longest_s
    while (alive := [p for p in processes if _is_alive(p)]) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return alive


def _listens(process: psutil.Process, port: int) -> bool:
    """Whether a process listens at a port."""
    try:
        connections = process.net_connections(kind="tcp")
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
