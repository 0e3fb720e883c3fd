"""Measure cells in groups that fit in memory together, one turn of one cell at a time.

A `Scheduler` interleaves the repetitions of the cells of a group. A turn is one prompt of one cell
where all cells are loaded, so that a slow spell of the machine hits the cells that are compared
alike; an engine that must be alone answers all prompts in a turn. It knows nothing of Ray: a worker
is anything that runs a phase of `pipeline.sweep.cell_process.CellProcess`. `Groups` splits a sweep;
later groups measure the best baseline again.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pipeline.cell.cell import EndsOwnStart
from pipeline.judge.comparison import compare
from pipeline.record.record import Status, save_record
from pipeline.record.sweep_folder import SweepFolder
from pipeline.sweep.build import PlannedCell
from pipeline.sweep.cell_process import Repetition, WarmUp
from pipeline.sweep.progress import Progress
from pipeline.sweep.running_cell import (
    BaselineControl,
    Launcher,
    RunningCell,
    Worker,
    WorkerFailed,
    tail,
)
from pipeline.sweep.stop_rule import StopRule

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

    def run(self, cells: Sequence[RunningCell]) -> None:
        """Start, warm up and repeat a group's cells until each has ended; no worker outlives this.

        A control takes its turn before the cells that it is interleaved with: it then keeps a
        repetition before the cells' last one ends them.
        """
        began = datetime.now(UTC).isoformat(timespec="milliseconds")
        for running in cells:
            running.record = replace(
                running.record, group_starts=(*running.record.group_starts, began)
            )
        try:
            self._start(cells)
            for running in _unended(cells):
                self._warm_up(running)
            self._repeat(cells)
        finally:
            for running in cells:
                self.progress.left(running.record)
                if running.worker is not None:
                    running.worker.kill()

    def _start(self, cells: Sequence[RunningCell]) -> None:
        """Start the engines, two at a time."""
        waiting, starting = list(cells), list[RunningCell]()
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
        self.progress.doing(f"starting {self.progress.name(running.record)}")
        begun = time.perf_counter()
        running.worker = self.spawn(running)
        running.spend("orchestrate", time.perf_counter() - begun)
        running.worker.begin(
            "start", pickle.dumps(running.plan.cell), pickle.dumps(running.plan.prompts)
        )

    def _await_start(self, running: RunningCell) -> None:
        """Wait until the cell is loaded.

        An engine with a time-out of its own ends a start itself, and says how far it was.
        """
        engine = running.plan.cell.engine
        own = engine.start_timeout_s + STOP_TIMEOUT_S if isinstance(engine, EndsOwnStart) else 0.0
        if running.worker is not None:
            running.spend("start", running.worker.result(max(self.start_timeout_s, own)))

    def _warm_up(self, running: RunningCell) -> None:
        """Warm up alone: an engine may time itself to choose its settings."""
        self.progress.doing(f"warming up {self.progress.name(running.record)}")
        with self._failing(running):
            warm: WarmUp
            warm, waited = running.call("warm_up", self.start_timeout_s)
            running.record = replace(running.record, settings=warm.settings)
            running.spend("warm_up", warm.seconds)
            running.spend("orchestrate", waited - warm.seconds)

    def _repeat(self, cells: Sequence[RunningCell]) -> None:
        """Go round until no cell is left; each round in an order of its own."""
        number = 0
        while active := _unended(cells):
            self._round(active, random.Random(f"{self.seed}:{number}"))
            number += 1

    def _round(self, cells: Sequence[RunningCell], chance: random.Random) -> None:
        """Measure one repetition of every cell, turn by turn."""
        order = chance.sample(cells, len(cells))
        turns = defaultdict[str, list[Repetition]](list)
        for turn in range(max(running.plan.num_turns for running in cells)):
            for running in _unended(order):
                if turn < running.plan.num_turns:
                    with self._failing(running):
                        turns[running.record.cell_id].append(self._take_turn(running, turn))
        for running in _unended(cells):
            with self._failing(running):
                self._complete(running, turns[running.record.cell_id])

    def _take_turn(self, running: RunningCell, turn: int) -> Repetition:
        """Let one cell answer the prompts of a turn."""
        number, count = len(running.record.repetitions), running.plan.prompts_per_turn
        self.progress.repeating(running.record)
        limit = self.repetition_timeout_s
        answered: Repetition
        answered, waited = running.call("answer", limit, number, turn * count, count)
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
        if isinstance(running, BaselineControl):
            self.progress.say(f"{running.record.label}: {status}: {reason}")
            return
        self.progress.ended(running.record)
        self.on_end(running)


def _unended(cells: Sequence[RunningCell]) -> list[RunningCell]:
    """Return the cells that still have to be measured."""
    return [running for running in cells if running.runs]


@dataclass(frozen=True)
class Groups:
    """Cuts the cells of a sweep into groups, as many cells as may be loaded and as the GPUs hold.

    A comparison is not cut if it fits whole. Where it must be, plain cells go first, and the
    fastest of them takes turns with each later group again.
    """

    planned: Sequence[PlannedCell]
    folder: SweepFolder
    launcher: Launcher
    num_gpus: int

    def cut(self, running_cells: Sequence[RunningCell]) -> Iterator[list[RunningCell]]:
        """Yield the groups of some cells; each must be measured before the next is asked for."""
        group = list[RunningCell]()
        for cells in _comparisons(running_cells):
            more = [*self._controls(cells), *cells]  # its plain cells may have ended before
            if group and not self._fit(group, more):
                yield _together(group)
                group = []
            for running in more:
                if group and not self._fit(group, [running]):
                    yield _together(group)
                    group = list(self._controls(cells))
                group = [*group, running]
        if group:
            yield _together(group)

    def _fit(self, group: Sequence[RunningCell], more: Sequence[RunningCell]) -> bool:
        """Say whether more cells can be loaded with those of a group."""
        plans = [running.plan for running in (*group, *more)]
        gpus = sum(self.launcher.gpus_per_cell or plan.gpus for plan in plans)
        room = len(plans) <= self.launcher.resident and gpus <= self.num_gpus
        return room and all(plan.resident for plan in plans)

    def _controls(self, cells: Sequence[RunningCell]) -> Iterator[RunningCell]:
        """Yield what measures the best plain cell again, if one has ended and there is room.

        Args:
            cells: Cells of one comparison, at least one.
        """
        if not self._fit(cells[:1], cells[:1]):  # a second one of its size has no room
            return
        plans = {
            plan.cell.cell_id: plan
            for plan in self.planned
            if plan.cell.comparison == cells[0].record.comparison
        }
        # With the drafted ones: what loops in any of them does not count for the choice either.
        ended = [record for cell_id in plans if (record := self.folder.record(cell_id))]
        for best in (found.best for found in compare(ended)):
            if best is not None:
                plan = plans[best.cell_id]
                record = replace(plan.record, label=f"{best.label} (again, as control)")
                yield BaselineControl(plan, self.folder.control(best.cell_id), record)


def _comparisons(running_cells: Sequence[RunningCell]) -> list[list[RunningCell]]:
    """Return the cells of each comparison, in the order of first appearance, plain ones first."""
    found: dict[str, list[RunningCell]] = {}
    for running in running_cells:
        found.setdefault(running.record.comparison, []).append(running)
    return [
        sorted(cells, key=lambda running: not running.record.is_baseline)
        for cells in found.values()
    ]


def _together(group: list[RunningCell]) -> list[RunningCell]:
    """Tell each control of a group which cells of its comparison are interleaved with it."""
    for control in group:
        if isinstance(control, BaselineControl):
            shared = control.record.comparison
            control.others = [
                running
                for running in group
                if running is not control and running.record.comparison == shared
            ]
    return group
