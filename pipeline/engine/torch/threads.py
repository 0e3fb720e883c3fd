"""How many CPU threads decode fastest: measured once per sweep, the same for all of its cells."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

from pipeline.machine.reaper import SWEEP_MARK

# A higher number of threads must win by this much: on shared cores it is the first to suffer.
WORTH = 0.97
# Each number is tried in several rounds, spread over seconds, and its fastest step counts: whatever
# else runs, such as the disk taking in a checkpoint that was just converted, only ever slows one.
ROUNDS, PAUSE_S = 6, 0.25


def available_cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def calibrated_threads(measure: Callable[[int], float], digest: str, cache: Path) -> int:
    """Return the number of threads whose decode step is fastest.

    Cells of one sweep warm up in processes of their own; they must agree, so the first one measures
    and the others read its answer. The next sweep measures again, since the machine may be another
    or busier.

    Args:
        measure: Gives the shortest time of a few decode steps at a number of threads.
        digest: Identity of the target's weights.
        cache: The cache folder.
    """
    cores = available_cores()
    sweep = os.environ.get(SWEEP_MARK, f"process {os.getpid()}")
    key = f"{sweep}, {platform.node()}, {cores} cores, {digest[:16]}"
    path = cache / "threads.json"
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        if key not in known:
            known = {key: fastest_threads(measure, cores, PAUSE_S)}
            file.truncate(0)
            file.write(json.dumps(known))
    return int(known[key])


def fastest_threads(measure: Callable[[int], float], cores: int, pause_s: float = PAUSE_S) -> int:
    """Return the best of 1, 2, 4 … and all cores; fewer threads win a near tie."""
    powers = (1 << power for power in range(cores.bit_length()))
    candidates = sorted({cores, *(threads for threads in powers if threads <= cores)})
    if len(candidates) == 1:
        return candidates[0]
    times = dict.fromkeys(candidates, float("inf"))
    for _ in range(ROUNDS):
        for threads in candidates:
            times[threads] = min(times[threads], measure(threads))
        time.sleep(pause_s)
    best = candidates[0]
    for threads in candidates[1:]:
        if times[threads] < times[best] * WORTH:
            best = threads
    return best
