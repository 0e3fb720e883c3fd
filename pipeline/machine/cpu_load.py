"""Is anything else using the machine? A share beside every timed sample."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psutil


class OtherProcesses:
    """The CPU time that other processes use from its making on."""

    def __init__(self, ours: Sequence[psutil.Process] = ()) -> None:
        """Note the CPU time of the machine, of this process and of others that count as ours."""
        self._ours = [psutil.Process(), *ours]
        self._busy, self._whole = _machine()
        self._own = self._own_seconds()

    def share(self) -> float:
        """Return the others' share of the machine's CPU time since the making, 0 to 1.

        The kernel counts in hundredths of a second: over less than half a second the share is
        coarse.
        """
        busy, whole = _machine()
        if whole <= self._whole:
            return 0.0
        others = (busy - self._busy) - (self._own_seconds() - self._own)
        return min(max(others / (whole - self._whole), 0.0), 1.0)

    def _own_seconds(self) -> float:
        seconds = 0.0
        for process in self._ours:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds += times.user + times.system
        return seconds


def _machine() -> tuple[float, float]:
    """Return the seconds that all CPUs were busy, and busy or idle, since boot."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Guest time is part of user time on Linux, so it is not added again.
    whole = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return whole - idle, whole
