r"""Break real servers and look at what is left: a failed cell with its cause, and nothing else.

    python -m experiments.sglang_grid.faults OUT [NAMES] target.source=/models/small \
        engine.version=0.5.17

NAMES are some of `killed,hung,memory,port`, in the order to commit them; all by default:

- killed: a scheduler gets SIGKILL in the middle of an answer.
- hung: a whole server gets SIGSTOP in the middle of an answer; give engine.hang_timeout_s=15.
- memory: a model too large for any GPU. Our own check must refuse it before a launch, by the size
  of its files; with random weights, which have none, the real server must run out of memory.
- port: another process takes the first port, which must fail nothing.

Each is one start, and the next start shows that nothing of it was left: a cell is measured after
the last fault if that was meant to fail. Any override of `python -m pipeline` is taken.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from experiments.sglang_grid.away import Here, new_sweep, scheduler_of
from experiments.sglang_grid.too_large import WEIGHTS, refusal, write_too_large
from pipeline.config.compose import compose_each
from pipeline.engine.sglang import server
from pipeline.engine.sglang.gpus import SLACK_MIB, gpus
from pipeline.record.record import CellRecord, Status
from pipeline.sweep.build import build_cells
from pipeline.sweep.planned import PlannedCell
from pipeline.sweep.running_cell import RunningCell
from pipeline.sweep.stop_rule import StopRule

WAIT_S = 300.0
Strike = Callable[[psutil.Process], None]


@dataclass(frozen=True)
class Fault:
    """What is done to a cell, and what its record must say.

    Attributes:
        reason: Pattern that the record's reason must have.
        strike: Hits the server while it answers.
        overrides: More settings of the cell.
        around: Holds while the cell runs.
    """

    name: str
    expected: Status
    reason: str = ""
    strike: Strike | None = None
    overrides: tuple[str, ...] = ("drafter=none",)
    around: Callable[[], contextlib.AbstractContextManager[None]] = field(
        default=contextlib.nullcontext
    )


def main(out: Path, names: Sequence[str], overrides: list[str]) -> int:
    """Commit faults by name, and return how many left more, or less, than they should."""
    known = faults(out)
    if unknown := set(names) - set(known):
        raise ValueError(f"{', '.join(sorted(unknown))}: the faults are {', '.join(known)}")
    chosen, wrong = [known[name] for name in names or known], 0
    if known["memory"] in chosen:
        wrong += refused_before_launch(out, overrides)
    if chosen[-1].expected is Status.FAILED:
        chosen.append(Fault("after", Status.OK, overrides=("drafter=ngram",)))
    return wrong + sum(commit(fault, out / fault.name, overrides) for fault in chosen)


def faults(out: Path) -> dict[str, Fault]:
    """Return every fault by its name."""
    # Random weights have no files whose size our own check could compare.
    large = ("drafter=none", f"target.source={out / 'too_large'}", "engine.load_format=dummy")
    all_ = (
        Fault("killed", Status.FAILED, "scheduler.* (is gone|crashed)", kill_scheduler),
        Fault("hung", Status.FAILED, "the server hangs", stop_all),
        Fault("memory", Status.FAILED, "out of memory", overrides=large),
        Fault("port", Status.OK, overrides=("drafter=ngram",), around=first_port_taken),
    )
    return {fault.name: fault for fault in all_}


def commit(fault: Fault, out: Path, overrides: list[str]) -> bool:
    """Run a cell while a fault hits it; return whether anything is amiss."""
    memory, began = [gpu.used_mib for gpu in gpus()], time.monotonic()
    ours = psutil.Process()
    before = ours.children(recursive=True)
    plan, measuring = planned([*overrides, *fault.overrides])
    sweep = new_sweep(out, [plan])
    running = RunningCell(plan, sweep.cell(plan.cell.cell_id), plan.record)
    here = Here({}, running.log)
    if fault.strike is not None:
        threading.Thread(target=hit, args=(here, fault.strike), daemon=True).start()
    with fault.around():
        scheduler_of(measuring, 1, lambda _: here).run([running])
    sweep.note(ended="FINISHED")
    children = [p for p in ours.children(recursive=True) if p not in before]
    left = [p for p in children if p.status() != "zombie"]
    grown = [gpu.used_mib - was for gpu, was in zip(gpus(), memory, strict=True)]
    amiss = bool(left) or any(more > SLACK_MIB for more in grown) or not is_as_meant(fault, running)
    print(f"{'WRONG ' if amiss else ''}{fault.name}: {time.monotonic() - began:.0f} s")
    print(f"  {running.record.label}: {running.record.status} {running.record.reason[:300]}")
    print(f"  processes left: {len(left)}; GPU memory grown by {grown} MiB", flush=True)
    return amiss


def is_as_meant(fault: Fault, running: RunningCell) -> bool:
    """Whether the record says what was done."""
    record: CellRecord = running.record
    return record.status is fault.expected and bool(re.search(fault.reason, record.reason))


def refused_before_launch(out: Path, overrides: list[str]) -> bool:
    """Let our own check see a model too large for memory; return whether it lets that through."""
    plan, _ = planned([*overrides, "drafter=none"])
    folder = write_too_large(plan.cell.target, out / "too_large")
    said = refusal(lambda: planned([*overrides, "drafter=none", f"target.source={folder}"]))
    (folder / WEIGHTS).unlink()  # whoever copies OUT would read all of its emptiness
    amiss = "GiB are missing" not in said
    print(
        f"{'WRONG ' if amiss else ''}memory, before any launch: {said or 'let through'}", flush=True
    )
    return amiss


def planned(overrides: Sequence[str]) -> tuple[PlannedCell, StopRule]:
    """Build one cell.

    Raises:
        ValueError: It cannot run.
    """
    (config,) = compose_each([["engine=sglang", *overrides]])
    return build_cells([config], [list(overrides)], "refuse")[0], StopRule(**config.measurement)


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


@contextlib.contextmanager
def first_port_taken() -> Iterator[None]:
    """Let the first port that a server is given be another process's."""
    free = server._free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server._free_port = itertools.chain([taken.getsockname()[1]], iter(free, 0)).__next__
        try:
            yield
        finally:
            server._free_port = free


if __name__ == "__main__":
    target, *rest = sys.argv[1:]
    named = rest.pop(0).split(",") if rest and "=" not in rest[0] else []
    raise SystemExit(main(Path(target).absolute(), named, rest))
