"""Run a planned sweep: measure its cells in groups, track and report them, and end it."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.record.record import CellRecord, Damaged, Status, save_record
from pipeline.record.sweep_folder import SweepFolder
from pipeline.report import terminal_table, write_report
from pipeline.sweep.groups import Groups
from pipeline.sweep.planned import PlannedCell
from pipeline.sweep.progress import Progress
from pipeline.sweep.running_cell import RunningCell
from pipeline.sweep.scheduler import Scheduler
from pipeline.sweep.settings import Settings
from pipeline.sweep.workers import Worker
from pipeline.track.sender import Sender

OK, FAILED, STOPPED = 0, 1, 130  # exit statuses
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
KEPT = (Status.OK, Status.VOID)  # what a resumed sweep does not measure again


@dataclass(frozen=True)
class Sweep:
    """A sweep that is ready to run.

    Attributes:
        num_gpus: GPUs that Ray has.
        begun: `time.perf_counter` when the sweep's own work began.
    """

    planned: Sequence[PlannedCell]
    settings: Settings
    folder: SweepFolder
    sender: Sender
    progress: Progress
    num_gpus: int
    begun: float

    def run(self) -> int:
        """Measure what is not measured yet, report all, and return the exit status."""
        running_cells = [
            running for plan in self.planned if (running := self._running_cell(plan)) is not None
        ]
        kept = len(self.planned) - len(running_cells)
        self.progress.expect(len(running_cells))
        self.progress.say(f"{self.folder.path}: {len(running_cells)} cells to measure, {kept} kept")
        share = (time.perf_counter() - self.begun) / max(1, len(running_cells))
        for running in running_cells:
            running.spend("orchestrate", share)
            save_record(running.record, running.folder)
        self.sender.begin()
        turns = self._scheduler()
        groups = Groups(self.planned, self.folder, self.settings.launcher, self.num_gpus)
        try:
            for group in groups.cut(running_cells):
                turns.run(group)
        except KeyboardInterrupt:
            self.folder.note(ended="KILLED")
            self.sender.finish("KILLED")
            self.progress.say("stopped; the same command with resume=true runs only the rest")
            return STOPPED
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            self.progress.say(f"{self.folder.path}: {error.strerror}; make room, then resume=true")
            return FAILED
        return self._finish()

    def _running_cell(self, plan: PlannedCell) -> RunningCell | None:
        """Return the cell on its way, or None if there is nothing to measure."""
        folder = self.folder.cell(plan.cell.cell_id)
        found = self._found(plan)
        if found is not None and found.status in KEPT:
            return None
        if plan.impossible:
            save_record(plan.record.ended(Status.SKIPPED, plan.impossible), folder)
            return None
        if found is not None and found.status is Status.UNFINISHED:
            return RunningCell(plan, folder, found, earlier=found.proof)
        self.folder.forget(plan.cell.cell_id)
        return RunningCell(plan, folder, plan.record)

    def _found(self, plan: PlannedCell) -> CellRecord | None:
        """Return what an earlier run left of the cell; a damaged one counts as none."""
        try:
            return self.folder.record(plan.cell.cell_id)
        except Damaged as damage:
            self.progress.say(f"{damage.problem}; {plan.record.label} is measured again")
            return None

    def _scheduler(self) -> Scheduler:
        """Return what measures a group of cells."""
        launcher = self.settings.launcher

        def spawn(running: RunningCell) -> Worker:
            mark = f"{self.folder.sweep_id}/{running.record.cell_id}"
            return launcher.spawn(mark, running.plan.gpus, running.log)

        return Scheduler(
            spawn=spawn,
            stop_rule=self.settings.stop_rule,
            start_timeout_s=launcher.start_timeout_s,
            repetition_timeout_s=launcher.repetition_timeout_s,
            progress=self.progress,
            on_end=lambda running: self.sender.cell(running.record),
            seed=self.settings.seed,
        )

    def _finish(self) -> int:
        """Write the report, complete MLflow, and say what there is to see and what failed."""
        records = self.folder.records()
        failed = [record for record in records if record.status is Status.FAILED]
        report = write_report(records, self.folder.path, self.folder.facts["provenance"])
        self.folder.note(
            ended="FAILED" if failed else "FINISHED",
            seconds={
                "wall": round(time.perf_counter() - self.begun, 2),
                "tracking": round(self.sender.seconds, 2),
            },
        )
        self.sender.finish("FAILED" if failed else "FINISHED")
        self.progress.say(f"\n{terminal_table(records)}\n")
        for record in failed:
            self.progress.say(_failure(record, self.folder.cell(record.cell_id)))
        self.progress.say(f"report: {report}")
        self.progress.say(f"dashboard: {self.settings.dashboard(self.sender.tracker.page)}")
        return FAILED if failed else OK


def _failure(record: CellRecord, folder: Path) -> str:
    """Return a failed cell's line, the end of its log, and how to run it again."""
    lines = "".join(f"    {line}\n" for line in record.log_tail.splitlines()[-8:])
    return f"failed: {record.label}: {record.reason}\n{lines}    log: {folder / 'worker.log'}"
