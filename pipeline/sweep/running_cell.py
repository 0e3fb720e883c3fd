"""Keep a cell's worker and its record while the sweep measures it.

A `RunningCell` stores each repetition as it ends. A `BaselineControl` is a plain cell that a later
group measures again; it stores its repetitions with the cells that it is interleaved with.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.cell.response import Response
from pipeline.config.messages import masked
from pipeline.record.record import CellRecord, Status, save_record, save_repetition
from pipeline.sweep.cell_process import OWN, Repetition
from pipeline.sweep.planned import PlannedCell
from pipeline.sweep.stop_rule import StopRule
from pipeline.sweep.workers import Worker, WorkerFailed
from verify.base import Proof

LOG_LINES = 30
TAIL_BYTES = 1 << 18
LINE_LENGTH = 500
NAMED = 15  # a shorter line is in a reason by chance
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass
class RunningCell:
    """A cell that the sweep measures: its worker, and its record so far.

    Attributes:
        folder: The cell's folder on disk.
        record: What is known so far; on disk at every moment.
        earlier: Proof of the repetitions that an interrupted process had recorded.
        worker: The live process, if any.
    """

    plan: PlannedCell
    folder: Path
    record: CellRecord
    earlier: Proof | None = None
    worker: Worker | None = None

    @property
    def log(self) -> Path:
        """File with all that the cell's processes print."""
        return self.folder / "worker.log"

    @property
    def runs(self) -> bool:
        """Whether it has to be measured on."""
        return self.record.status is Status.UNFINISHED

    @property
    def is_control(self) -> bool:
        """Whether it is a control: its repetitions are kept with other cells."""
        return False

    def enough(self, stop_rule: StopRule) -> str:
        """Say why it needs no more repetitions, or ""."""
        return stop_rule.stop(self.record)

    def spend(self, phase: str, seconds: float) -> None:
        """Add to the time that a phase took."""
        spent = self.record.seconds
        self.record = replace(self.record, seconds=spent | {phase: spent.get(phase, 0.0) + seconds})

    def call(self, phase: str, timeout_s: float, *arguments: Any) -> tuple[Any, float]:
        """Run one phase; return its result and the seconds that the driver waited."""
        begun = time.perf_counter()
        if self.worker is None:
            raise WorkerFailed(f"no worker for {phase}")
        self.worker.begin(phase, *arguments)
        return self.worker.result(timeout_s), time.perf_counter() - begun

    def keep(self, repetition: Repetition) -> None:
        """Store a repetition. The proof goes first: it may cover more than is kept, never less."""
        number = len(self.record.repetitions)
        proof = merge(self.earlier, repetition.proof)
        self.record = replace(self.record, proof=proof)
        save_record(self.record, self.folder)
        save_repetition(repetition.responses, number, self.folder)
        kept = (*self.record.repetitions, repetition.responses)
        self.record = replace(self.record, repetitions=kept)

    def keep_control(self, control_id: str, responses: tuple[Response, ...]) -> None:
        """Store a repetition of the plain cell that is interleaved with this one."""
        if control_id != self.record.control_id:  # another plain cell's are no use any more
            for path in self.folder.glob("control_*.jsonl"):
                path.unlink()
            self.record = replace(self.record, control_id=control_id, control=())
            save_record(self.record, self.folder)
        save_repetition(responses, len(self.record.control), self.folder, "control")
        self.record = replace(self.record, control=(*self.record.control, responses))


def merge(earlier: Proof | None, now: Proof) -> Proof:
    """Return one proof for the repetitions of two processes of the same cell.

    Raises:
        WorkerFailed: The two ran differently, so that their times are not of one cell.
    """
    if earlier is None:
        return now
    steps = earlier.num_verify_steps + now.num_verify_steps
    both = replace(
        now,
        num_verify_steps=steps,
        num_captured_steps=earlier.num_captured_steps + now.num_captured_steps,
        running_requests=sum(p.num_verify_steps * p.running_requests for p in (earlier, now))
        / max(steps, 1),
    )
    if _how(earlier) != _how(now):
        raise WorkerFailed(
            f"the engine ran differently before the interruption ({earlier} then, {now} now);"
            " resume again to measure the cell from the start"
        )
    return both


def _how(proof: Proof) -> Proof:
    """Return a proof without its counts: how steps ran, not how many."""
    return replace(proof, num_verify_steps=0, num_captured_steps=0, running_requests=0.0)


def tail(log: Path, reason: str = "") -> str:
    """Return the last lines of a log, or "" if there is none.

    They are those of the engine, up to the line that the reason names: what follows are words of
    processes that end because of it. Of a stack of this project's, the last line is shown at most.

    Args:
        log: File of a worker's output.
        reason: Why its cell failed.
    """
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = _COLOUR.sub("", file.read().decode(errors="replace"))
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    shown = [line for line in lines if not line.startswith(OWN)]
    named = [i for i, line in enumerate(shown) if _names(reason, line)]
    if named:
        shown = shown[: named[-1] + 1]
    else:
        shown += [line.removeprefix(OWN) for line in lines if line.startswith(OWN)][-1:]
    return masked("\n".join(line[:LINE_LENGTH] for line in shown[-LOG_LINES:]))


def _names(reason: str, line: str) -> bool:
    """Whether a reason holds a line, or the line the end of the reason."""
    ends = (reason[found.end() :] for found in re.finditer(": ", reason))
    whole = len(line) >= NAMED and line.strip() in reason
    return whole or any(len(end) >= NAMED and end in line for end in ends)


@dataclass
class BaselineControl(RunningCell):
    """A plain cell with a finished record, measured again as the control of a later group.

    It is repeated as long as one of them is. What it measures is kept with each of them, so that a
    cell's record is whole by itself; the plain cell's own record stays as it is.

    Attributes:
        others: The cells that it is interleaved with and compared to.
    """

    others: Sequence[RunningCell] = ()

    @property
    def runs(self) -> bool:
        """Whether one of `others` still has to be measured, and the control has not failed."""
        return super().runs and any(other.runs for other in self.others)

    @property
    def is_control(self) -> bool:
        """True: its repetitions are kept with `others`."""
        return True

    def enough(self, stop_rule: StopRule) -> str:
        """Return "": the stop rules of `others` end the control too."""
        return ""

    def keep(self, repetition: Repetition) -> None:
        """Give a repetition to the cells that still run.

        Raises:
            WorkerFailed: The engine ran it in another way than its label says.
        """
        proof = repetition.proof
        if problem := proof.problem or self.plan.cell.verify.contradiction(proof):
            raise WorkerFailed(problem)
        for other in self.others:
            if other.runs:
                other.keep_control(self.record.cell_id, repetition.responses)
        kept = (*self.record.repetitions, repetition.responses)
        self.record = replace(self.record, repetitions=kept)
