"""Interleave the repetitions of the cells of a group, one turn of one cell at a time.

A turn is one prompt of one cell where all cells are loaded, so that a slow spell of the machine
hits the cells that are compared alike. An engine that must be alone answers all prompts in a turn.
Knows nothing of Ray: a worker is anything that runs a phase of
`pipeline.sweep.cell_process.CellProcess`.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pipeline.cell.cell import EndsOwnStart
from pipeline.record.record import Status, save_record
from pipeline.sweep.cell_process import Repetition, WarmUp
from pipeline.sweep.progress import Progress
from pipeline.sweep.running_cell import RunningCell, tail
from pipeline.sweep.stop_rule import StopRule
from pipeline.sweep.workers import Worker, WorkerFailed

STARTS_AT_ONCE = 2  # a start is mostly imports and reading weights, on one core
STOP_TIMEOUT_S = 120.0  # a server gives its GPUs back in this time


@dataclass(frozen=True)
class Scheduler:
    """Measures a group of cells that are loaded at the same time.

    Attributes:
        spawn: Starts a fresh worker process for a cell, its output going to a file.
        start_timeout_s: Longest warm-up, and longest start of an engine that sets none itself.
        repetition_timeout_s: Longest turn.
        on_end: Called with each cell that has ended.
        seed: Shuffles the order within each round.
    """

    spawn: Callable[[RunningCell], Worker]
    stop_rule: StopRule
    start_timeout_s: float
    repetition_timeout_s: float
    progress: Progress
    on_end: Callable[[RunningCell], None]
    seed: int

    def run(self, running_cells: Sequence[RunningCell]) -> None:
        """Start, warm up and repeat until every cell has ended; workers never outlive this.

        A control takes its turn before the cells that it is interleaved with: it then keeps a
        repetition before the cells' last one ends them.
        """
        began = datetime.now(UTC).isoformat(timespec="milliseconds")
        for running in running_cells:
            running.record = replace(
                running.record, group_starts=(*running.record.group_starts, began)
            )
        try:
            self._start(running_cells)
            for running in _unended(running_cells):
                self._warm_up(running)
            self._repeat(running_cells)
        finally:
            for running in running_cells:
                self.progress.left(running.record)
                if running.worker is not None:
                    running.worker.kill()

    def _start(self, running_cells: Sequence[RunningCell]) -> None:
        """Start the engines, two at a time."""
        waiting, starting = list(running_cells), list[RunningCell]()
        while waiting or starting:
            while waiting and len(starting) < STARTS_AT_ONCE:
                running = waiting.pop(0)
                with self._failing(running):
                    self._begin_start(running)
                    starting.append(running)
            if starting:
                running = starting.pop(0)
                with self._failing(running):
                    self._await_start(running)

    def _begin_start(self, running: RunningCell) -> None:
        """Make the worker and let it load the cell."""
        self.progress.starting(running.record)
        begun = time.perf_counter()
        running.worker = self.spawn(running)
        running.spend("orchestrate", time.perf_counter() - begun)
        running.worker.begin(
            "start", pickle.dumps(running.plan.cell), pickle.dumps(running.plan.prompts)
        )

    def _await_start(self, running: RunningCell) -> None:
        """Wait until the cell is loaded."""
        if running.worker is not None:
            running.spend("start", running.worker.result(self._longest_start(running)))

    def _longest_start(self, running: RunningCell) -> float:
        """Return the time after which a start is ended from here.

        An engine with a time-out of its own ends a start itself, and says how far it was.
        """
        engine = running.plan.cell.engine
        own = engine.start_timeout_s + STOP_TIMEOUT_S if isinstance(engine, EndsOwnStart) else 0.0
        return max(self.start_timeout_s, own)

    def _warm_up(self, running: RunningCell) -> None:
        """Warm up alone: an engine may time itself to choose its settings."""
        self.progress.warming_up(running.record)
        with self._failing(running):
            result, waited = running.call("warm_up", self.start_timeout_s)
            warm: WarmUp = result
            running.record = replace(running.record, settings=warm.settings)
            running.spend("warm_up", warm.seconds)
            running.spend("orchestrate", waited - warm.seconds)

    def _repeat(self, running_cells: Sequence[RunningCell]) -> None:
        """Go round until no cell is left; each round in an order of its own."""
        number = 0
        while active := _unended(running_cells):
            self._round(active, random.Random(f"{self.seed}:{number}"))
            number += 1

    def _round(self, running_cells: Sequence[RunningCell], chance: random.Random) -> None:
        """Measure one repetition of every cell, turn by turn."""
        order = chance.sample(running_cells, len(running_cells))
        turns: dict[str, list[Repetition]] = {
            running.record.cell_id: [] for running in running_cells
        }
        most = max(running.plan.num_turns for running in running_cells)
        for turn in range(most):
            for running in _unended(order):
                if turn < running.plan.num_turns:
                    with self._failing(running):
                        turns[running.record.cell_id].append(self._take_turn(running, turn))
        for running in _unended(running_cells):
            with self._failing(running):
                self._complete(running, turns[running.record.cell_id])

    def _take_turn(self, running: RunningCell, turn: int) -> Repetition:
        """Let one cell answer the prompts of a turn."""
        number, count = len(running.record.repetitions), running.plan.prompts_per_turn
        self.progress.repeating(running.record)
        result, waited = running.call(
            "answer", self.repetition_timeout_s, number, turn * count, count
        )
        answered: Repetition = result
        running.spend("measure", answered.seconds)
        running.spend("orchestrate", waited - answered.seconds)
        return answered

    def _complete(self, running: RunningCell, turns: Sequence[Repetition]) -> None:
        """Keep a whole repetition of one cell, and end the cell if that was enough."""
        responses = tuple(response for turn in turns for response in turn.responses)
        seconds = sum(turn.seconds for turn in turns)
        running.keep(Repetition(responses, seconds, turns[-1].proof))
        self.progress.repeated(running.record, seconds)
        if rule := running.enough(self.stop_rule):
            running.record = replace(running.record, stop_rule=rule)
            self._finish(running)

    def _finish(self, running: RunningCell) -> None:
        """Stop a measured cell; its label must agree with what the engine did."""
        begun = time.perf_counter()
        with contextlib.suppress(WorkerFailed):  # the figures are whole, and the kill follows
            running.call("stop", STOP_TIMEOUT_S)
        self._retire(running)
        running.spend("orchestrate", time.perf_counter() - begun)
        proof = running.record.proof
        contradiction: str | None = "no proof"
        if proof is not None:
            contradiction = proof.problem or running.plan.cell.verify.contradiction(proof)
        self._end(running, Status.VOID if contradiction else Status.OK, contradiction or "")

    @contextlib.contextmanager
    def _failing(self, running: RunningCell) -> Iterator[None]:
        """Turn a worker's failure into the end of its cell, and of nothing else."""
        try:
            yield
        except WorkerFailed as failure:
            self._retire(running)
            running.record = replace(running.record, log_tail=tail(running.log, str(failure)))
            self._end(running, Status.FAILED, str(failure))

    def _retire(self, running: RunningCell) -> None:
        """End the worker."""
        if running.worker is not None:
            running.worker.kill()
            running.worker = None

    def _end(self, running: RunningCell, status: Status, reason: str) -> None:
        """Record the end, on disk first, then for everyone else."""
        running.record = running.record.ended(status, reason)
        save_record(running.record, running.folder)
        if running.is_control:
            self.progress.say(f"{running.record.label}: {status}: {reason}")
            return
        self.progress.ended(running.record)
        self.on_end(running)


def _unended(running_cells: Sequence[RunningCell]) -> list[RunningCell]:
    """Return the cells that still run."""
    return [running for running in running_cells if running.runs]
