"""Short turns on a shared core, for ranks that wait for each other at the end of every block.

A program that wakes up waits for the turn of the one that runs, about 3 ms by default, and a step
has sixty sums. Beside two busy programs a step of two ranks took 85 ms so, and 25 in turns of
0.1 ms (one rank alone: 29 to 36). The share of the core that a process gets stays the same.
"""

from __future__ import annotations

import ctypes
import platform

_TURN_NS = 100_000  # the shortest that Linux takes
_SYSCALLS = {"x86_64": 314, "aarch64": 274}  # sched_setattr


class _Attributes(ctypes.Structure):
    """`struct sched_attr` of linux/sched/types.h."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),  # 0 is the usual one, whose turns these are
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def take_short_turns() -> None:
    """Ask for short turns of this thread and what it starts; before Linux 6.12, no change."""
    number = _SYSCALLS.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return
    wanted = _Attributes(ctypes.sizeof(_Attributes), runtime=_TURN_NS)
    ctypes.CDLL(None).syscall(number, 0, ctypes.byref(wanted), 0)
