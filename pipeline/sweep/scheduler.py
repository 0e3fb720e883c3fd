"""Repetitions in turns: cells that are compared are measured side by side, one at a time.

A turn is one prompt of one cell where all cells are loaded, so that a slow spell of the machine
hits the cells that are compared alike. An engine that must be alone answers all prompts in a turn.
Knows nothing of Ray: a worker is anything that runs a phase of `pipeline.sweep.cell_process.CellRun`.
"""

from __future__ import annotations

import contextlib
import pickle
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pipeline.record.record import Status, save_record
from pipeline.sweep.cell_process import Repetition, WarmUp
from pipeline.sweep.progress import Progress
from pipeline.sweep.running_cell import Lane, tail
from pipeline.sweep.stop_rule import Measuring
from pipeline.sweep.workers import Worker, WorkerFailed

STARTS_AT_ONCE = 2  # a start is mostly imports and reading weights, on one core
STOP_TIMEOUT_S = 120.0  # a server gives its GPUs back in this time


@dataclass(frozen=True)
class Turns:
    """Measures a group of cells that are loaded at the same time.

    Attributes:
        spawn: Starts a fresh worker process for a cell, its output going to a file.
        start_timeout_s: Longest warm-up, and longest start of an engine that sets none itself.
        repetition_timeout_s: Longest turn.
        on_end: Called with each cell that has ended.
        seed: Shuffles the order within each round.
    """

    spawn: Callable[[Lane], Worker]
    measuring: Measuring
    start_timeout_s: float
    repetition_timeout_s: float
    progress: Progress
    on_end: Callable[[Lane], None]
    seed: int

    def run(self, lanes: Sequence[Lane]) -> None:
        """Start, warm up and repeat until every cell has ended; workers never outlive this.

        A control goes before the cells that it stands beside: it then keeps a repetition before the
        cells' last one ends them.
        """
        began = datetime.now(UTC).isoformat(timespec="milliseconds")
        for lane in lanes:
            lane.record = replace(lane.record, turns=(*lane.record.turns, began))
        try:
            self._start(lanes)
            for lane in _unended(lanes):
                self._warm_up(lane)
            self._repeat(lanes)
        finally:
            for lane in lanes:
                self.progress.left(lane.record)
                if lane.worker is not None:
                    lane.worker.kill()

    def _start(self, lanes: Sequence[Lane]) -> None:
        """Start the engines, two at a time."""
        waiting, starting = list(lanes), list[Lane]()
        while waiting or starting:
            while waiting and len(starting) < STARTS_AT_ONCE:
                lane = waiting.pop(0)
                with self._failing(lane):
                    self._begin_start(lane)
                    starting.append(lane)
            if starting:
                lane = starting.pop(0)
                with self._failing(lane):
                    self._await_start(lane)

    def _begin_start(self, lane: Lane) -> None:
        """Make the worker and let it load the cell."""
        self.progress.starting(lane.record)
        begun = time.perf_counter()
        lane.worker = self.spawn(lane)
        lane.spend("orchestrate", time.perf_counter() - begun)
        lane.worker.begin("start", pickle.dumps(lane.plan.cell), pickle.dumps(lane.plan.prompts))

    def _await_start(self, lane: Lane) -> None:
        """Wait until the cell is loaded."""
        if lane.worker is not None:
            lane.spend("start", lane.worker.result(self._longest_start(lane)))

    def _longest_start(self, lane: Lane) -> float:
        """Return the time after which a start is ended from here.

        An engine with a time-out of its own ends a start itself, and says how far it was.
        """
        own: float = getattr(lane.plan.cell.engine, "start_timeout_s", 0.0)
        return max(self.start_timeout_s, own + STOP_TIMEOUT_S if own else 0.0)

    def _warm_up(self, lane: Lane) -> None:
        """Warm up alone: an engine may time itself to choose its settings."""
        self.progress.warming_up(lane.record)
        with self._failing(lane):
            result, waited = lane.call("warm_up", self.start_timeout_s)
            warm: WarmUp = result
            lane.record = replace(lane.record, settings=warm.settings)
            lane.spend("warm_up", warm.seconds)
            lane.spend("orchestrate", waited - warm.seconds)

    def _repeat(self, lanes: Sequence[Lane]) -> None:
        """Go round until no cell is left; each round in an order of its own."""
        number = 0
        while active := _unended(lanes):
            self._round(active, random.Random(f"{self.seed}:{number}"))
            number += 1

    def _round(self, lanes: Sequence[Lane], chance: random.Random) -> None:
        """Measure one repetition of every cell, turn by turn."""
        order = chance.sample(lanes, len(lanes))
        turns: dict[str, list[Repetition]] = {lane.record.cell_id: [] for lane in lanes}
        most = max(lane.plan.num_turns for lane in lanes)
        for turn in range(most):
            for lane in _unended(order):
                if turn < lane.plan.num_turns:
                    with self._failing(lane):
                        turns[lane.record.cell_id].append(self._take_turn(lane, turn))
        for lane in _unended(lanes):
            with self._failing(lane):
                self._complete(lane, turns[lane.record.cell_id])

    def _take_turn(self, lane: Lane, turn: int) -> Repetition:
        """Let one cell answer the prompts of a turn."""
        number, count = len(lane.record.repetitions), lane.plan.prompts_per_turn
        self.progress.repeating(lane.record)
        result, waited = lane.call("answer", self.repetition_timeout_s, number, turn * count, count)
        answered: Repetition = result
        lane.spend("measure", answered.seconds)
        lane.spend("orchestrate", waited - answered.seconds)
        return answered

    def _complete(self, lane: Lane, turns: Sequence[Repetition]) -> None:
        """Keep a whole repetition of one cell, and end the cell if that was enough."""
        responses = tuple(response for turn in turns for response in turn.responses)
        seconds = sum(turn.seconds for turn in turns)
        lane.keep(Repetition(responses, seconds, turns[-1].proof))
        self.progress.repeated(lane.record, seconds)
        if rule := lane.enough(self.measuring):
            lane.record = replace(lane.record, stop_rule=rule)
            self._finish(lane)

    def _finish(self, lane: Lane) -> None:
        """Stop a measured cell; its label must agree with what the engine did."""
        begun = time.perf_counter()
        with contextlib.suppress(WorkerFailed):  # the figures are whole, and the kill follows
            lane.call("stop", STOP_TIMEOUT_S)
        self._retire(lane)
        lane.spend("orchestrate", time.perf_counter() - begun)
        proof = lane.record.proof
        contradiction: str | None = "no proof"
        if proof is not None:
            contradiction = proof.problem or lane.plan.cell.verify.contradiction(proof)
        self._end(lane, Status.VOID if contradiction else Status.OK, contradiction or "")

    @contextlib.contextmanager
    def _failing(self, lane: Lane) -> Iterator[None]:
        """Turn a worker's failure into the end of its cell, and of nothing else."""
        try:
            yield
        except WorkerFailed as failure:
            self._retire(lane)
            lane.record = replace(lane.record, log_tail=tail(lane.log))
            self._end(lane, Status.FAILED, str(failure))

    def _retire(self, lane: Lane) -> None:
        """End the worker."""
        if lane.worker is not None:
            lane.worker.kill()
            lane.worker = None

    def _end(self, lane: Lane, status: Status, reason: str) -> None:
        """Record the end, on disk first, then for everyone else."""
        lane.record = lane.record.ended(status, reason)
        save_record(lane.record, lane.folder)
        if lane.is_control:
            self.progress.say(f"{lane.record.label}: {status}: {reason}")
            return
        self.progress.ended(lane.record)
        self.on_end(lane)


def _unended(lanes: Sequence[Lane]) -> list[Lane]:
    """Return the cells that still run."""
    return [lane for lane in lanes if lane.runs]
