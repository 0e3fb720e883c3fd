r"""Measure a plan of `experiments.sglang_grid.away` with all servers started at once, on a GPU box.

    PYTHONPATH=away/site:$PYTHONPATH \
        python3 -m experiments.sglang_grid.together away/plan.pkl OUT [FILE]

Starting servers one after the other takes most of the time of a grid. Here all start at the same
time, each stops itself (SIGSTOP) once it is ready, and only then are they measured, one at a time:
a stopped server runs nothing, on the GPU or on the host. They share the GPUs' memory, so give
engine.max_total_tokens, and the memory fence and the check for room are left out. With FILE,
nothing is measured before that file is there: servers may start while something else runs.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier, Lock
from pathlib import Path
from typing import Any

from experiments.sglang_grid.away import Here, end_skipped, new_sweep, scheduler_of
from pipeline.engine.sglang import server, session
from pipeline.sweep.planned import PlannedCell
from pipeline.sweep.running_cell import RunningCell
from pipeline.sweep.stop_rule import StopRule
from pipeline.sweep.workers import WorkerFailed

ALL_UP_S = 540.0
POLL_S = 0.2


@dataclass
class Sharing(Here):
    """A worker whose server waits, stopped, until it is its turn."""

    wait: Callable[[], None] = lambda: None

    def result(self, timeout_s: float) -> Any:
        """Run the phase; after the start, wait for the turn."""
        starts = self.phase[0] == "start"
        try:
            out = super().result(timeout_s)
        except WorkerFailed:
            if starts:
                self.wait()
            raise
        if starts:
            self._signal(signal.SIGSTOP)
            self.wait()
            self._signal(signal.SIGCONT)
        return out

    def _signal(self, number: signal.Signals) -> None:
        head = self.run._session.server.family.members[0]
        os.killpg(head.pid, number)


def cell(
    planned: PlannedCell,
    stop_rule: StopRule,
    folder: Path,
    barrier: Barrier,
    turn: Lock,
    after: Path | None,
) -> None:
    """Measure one cell in this process, once all are up and it has the turn."""
    # Others come and go on these GPUs: their memory says nothing of this cell's server.
    session.wait_for_room = server.fence = lambda *_: None
    running = RunningCell(planned, folder, planned.record)

    def wait() -> None:
        barrier.wait(ALL_UP_S)
        while after is not None and not after.exists():
            time.sleep(POLL_S)
        turn.acquire()

    try:
        scheduler_of(stop_rule, 1, lambda running: Sharing({}, running.log, wait=wait)).run(
            [running]
        )
    finally:
        turn.release()
    print(f"{running.record.label}: {running.record.status} {running.record.reason}", flush=True)


def main(path: Path, runs: Path, after: Path | None = None) -> None:
    """Measure every cell that can run."""
    planned, stop_rule = pickle.loads(path.read_bytes())
    sweep = new_sweep(runs, planned)
    able = [each for each in planned if not end_skipped(each, sweep)]
    context = multiprocessing.get_context("spawn")
    barrier, turn = context.Barrier(len(able)), context.Lock()
    os.environ["SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"] = "0"
    processes = [
        context.Process(
            target=cell, args=(e, stop_rule, sweep.cell(e.cell.cell_id), barrier, turn, after)
        )
        for e in able
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sweep.note(ended="FINISHED")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
