"""How many CPU threads decode fastest: measured once per machine and target, then remembered."""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

# A higher number of threads must win by this much: on shared cores it is the first to suffer.
WORTH = 0.97


def available_cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def calibrated_threads(measure: Callable[[int], float], digest: str, cache: Path) -> int:
    """Return the number of threads whose decode step is fastest.

    Cells of one sweep start in processes of their own; they must agree, so the first one measures
    and the others read its answer.

    Args:
        measure: Gives the time of a decode step at a number of threads.
        digest: Identity of the target's weights.
        cache: The cache folder.
    """
    cores = available_cores()
    key = f"{platform.node()} {platform.machine()} {cores} cores, {digest[:16]}"
    path = cache / "threads.json"
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        known = json.loads(file.read() or "{}")
        if key not in known:
            known[key] = _fastest(measure, cores)
            file.truncate(0)
            file.write(json.dumps(known, indent=1))
    return int(known[key])


def _fastest(measure: Callable[[int], float], cores: int) -> int:
    """Return the best of 1, 2, 4 … and all cores; fewer threads win a near tie."""
    candidates = sorted(
        {cores, *(1 << power for power in range(cores.bit_length()) if 1 << power <= cores)}
    )
    best, best_time = 1, float("inf")
    for threads in candidates:
        time = measure(threads)
        if time < best_time * WORTH:
            best, best_time = threads, time
    return best
