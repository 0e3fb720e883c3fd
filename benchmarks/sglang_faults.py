r"""Break real servers and look at what is left: a failed cell with its cause, and nothing else.

    python -m benchmarks.sglang_faults OUT target.source=/models/small engine.attention=triton

Each fault hits the first of two cells, and the second must be measured all the same: a scheduler
killed with SIGKILL, a whole server stopped with SIGSTOP (a hang), a cache that does not fit into
memory, and a port that another process takes first (which must fail nothing). Any override of
`python -m pipeline` is taken; give short time-outs (engine.hang_timeout_s=20).
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import psutil
from hydra import compose, initialize_config_module

from benchmarks.away import Here, new_sweep, turns_of
from pipeline.build import build_cells
from pipeline.engine.sglang import server
from pipeline.engine.sglang.gpus import SLACK_MIB, gpus
from pipeline.lane import Lane
from pipeline.measuring import Measuring
from pipeline.plan import Planned
from pipeline.record import Status

WAIT_S = 300.0
Strike = Callable[[psutil.Process], None]


def main(out: Path, overrides: list[str]) -> int:
    """Commit every fault, and return how many left more, or less, than they should."""
    tight = "engine.mem_fraction=0.005"
    wrong = [
        run(out / "killed", overrides, [], kill_scheduler, Status.FAILED),
        run(out / "hung", overrides, [], stop_all, Status.FAILED),
        run(out / "memory", overrides, [tight], None, Status.FAILED),
    ]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free = server._free_port
        ports = itertools.chain([taken.getsockname()[1]], iter(free, 0))
        server._free_port = ports.__next__
        wrong.append(run(out / "port", overrides, [], None, Status.OK))
    return sum(wrong)


def run(
    out: Path, overrides: list[str], more: list[str], strike: Strike | None, expected: Status
) -> bool:
    """Measure two cells while a fault hits the first; return whether anything is amiss."""
    memory, began = [gpu.used_mib for gpu in gpus()], time.monotonic()
    first, measuring = planned([*overrides, "drafter=none", *more])
    second, _ = planned([*overrides, "drafter=ngram"])
    sweep = new_sweep(out, [first, second])
    records = []
    for each in (first, second):
        lane = Lane(each, sweep.cell(each.cell.cell_id), each.record)
        here = Here({}, lane.log)
        if each is first and strike is not None:
            threading.Thread(target=hit, args=(here, strike), daemon=True).start()
        turns_of(measuring, 2, partial(_keep, here)).run([lane])
        records.append(lane.record)
    left = [p for p in psutil.Process().children(recursive=True) if p.status() != "zombie"]
    grown = [gpu.used_mib - was for gpu, was in zip(gpus(), memory, strict=True)]
    wrong = (
        records[0].status is not expected
        or records[1].status is not Status.OK
        or bool(left)
        or any(more > SLACK_MIB for more in grown)
    )
    print(f"{'WRONG ' if wrong else ''}{out.name}: {time.monotonic() - began:.0f} s")
    for record in records:
        print(f"  {record.label}: {record.status} {record.reason[:300]}")
    print(f"  processes left: {len(left)}; GPU memory grown by {grown} MiB", flush=True)
    return wrong


def planned(overrides: Sequence[str]) -> tuple[Planned, Measuring]:
    """Build one cell."""
    with initialize_config_module("conf", version_base=None):
        config = compose("config", overrides=["engine=sglang", *overrides])
    return build_cells([config], [list(overrides)], "refuse")[0], Measuring(**config.measurement)


def _keep(here: Here, lane: Lane) -> Here:
    """Give a lane the worker that was made for it."""
    return here


def hit(here: Here, strike: Strike) -> None:
    """Wait until the cell is being measured, then strike at its server."""
    deadline = time.monotonic() + WAIT_S
    while here.phase[0] != "answer" and time.monotonic() < deadline:
        time.sleep(0.01)
    strike(psutil.Process(here.run._session.server.family.members[0].pid))


def kill_scheduler(head: psutil.Process) -> None:
    """Kill one rank as the kernel would when memory runs out."""
    schedulers = [p for p in head.children(recursive=True) if "scheduler" in name(p)]
    schedulers[0].kill()


def stop_all(head: psutil.Process) -> None:
    """Stop every process of the server."""
    os.killpg(head.pid, signal.SIGSTOP)


def name(process: psutil.Process) -> str:
    """Return what a process calls itself."""
    return " ".join([process.name(), *process.cmdline()])


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2:]))
