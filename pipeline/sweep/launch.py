"""One sweep: a grid becomes a folder of records, MLflow runs and a report.

The order is what keeps a sweep safe: everything is checked, then the machine is locked, then
workers run, and each result is on disk before it is anywhere else. `launch` does this for a
multirun of Hydra, `run_sweep` for cells that are built already; a `Sweep` measures them in groups,
tracks and reports them, and ends.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from pipeline.cell.cell import DescribesStart
from pipeline.config.messages import folded
from pipeline.judge.comparison import judge
from pipeline.machine.lock import machine_lock
from pipeline.machine.provenance import MACHINE, provenance
from pipeline.machine.reaper import reaping
from pipeline.measure.wording import cell_names
from pipeline.record.record import CellRecord, Damaged, Status, save_record, write_atomically
from pipeline.record.sweep_folder import SweepFolder, create_sweep, newest_sweep
from pipeline.report import terminal_table, write_report
from pipeline.sweep.build import PlannedCell, build_cells, dry_run
from pipeline.sweep.progress import Progress
from pipeline.sweep.running_cell import Launcher, RunningCell, Worker
from pipeline.sweep.scheduler import Groups, Scheduler
from pipeline.sweep.settings import REFUSED, Settings, check_shared
from pipeline.track import Tracker
from pipeline.track.sender import Sender

OK, FAILED, STOPPED = 0, 1, 130  # exit statuses
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
KEPT = (Status.OK, Status.VOID)  # what a resumed sweep does not measure again


def launch(configs: Sequence[DictConfig], overrides: Sequence[Sequence[str]]) -> int:
    """Run the jobs of a multirun as one sweep; return the exit status of the process."""
    begun = time.perf_counter()
    try:
        if configs[0].dry_run:
            dry_run(configs, overrides)
            return OK
        check_shared(configs)
        settings = Settings.read(configs[0])
        planned = build_cells(configs, overrides, configs[0].on_impossible)
    except ValueError as refusal:
        sys.stderr.write("".join(f"{folded(line)}\n" for line in str(refusal).splitlines()))
        return REFUSED
    return run_sweep(planned, settings, begun)


def run_sweep(planned: Sequence[PlannedCell], settings: Settings, begun: float) -> int:
    """Measure cells that were built and checked; return the exit status of the process.

    Args:
        planned: Different cells, in the order of the grid.
        settings: Where, how long, and whether to continue.
        begun: `time.perf_counter` when the sweep's own work began.
    """
    with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
        try:
            sweep = _prepare(stack, planned, settings, begun)
        except ValueError as refusal:
            sys.stderr.write(f"{folded(refusal)}\n")
            return REFUSED
        stack.enter_context(_sigterm_as_interrupt())
        return sweep.run()
    return STOPPED


def _prepare(
    stack: contextlib.ExitStack, planned: Sequence[PlannedCell], settings: Settings, begun: float
) -> Sweep:
    """Take the machine, start Ray, open MLflow meanwhile, and find or make the folder.

    Raises:
        ValueError: One of these cannot be had; nothing of the grid has run.
    """
    _make_writable(settings.runs)
    asked = time.perf_counter()
    names = cell_names([plan.record for plan in planned])
    progress = Progress(len(planned), settings.stop_rule.min_repetitions, sys.stdout, names)
    lock = stack.enter_context(
        machine_lock(
            f"{len(planned)} cells into {settings.runs}", settings.launcher.on_busy, progress.say
        )
    )
    begun += time.perf_counter() - asked  # a queue is not orchestration
    stack.enter_context(reaping(f"{os.getpid()}-{time.time_ns()}", lock))
    log = stack.enter_context((settings.runs / "driver.log").open("a", buffering=1))
    stack.enter_context(contextlib.redirect_stdout(log))  # Ray prints a page per lost process
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(
            Tracker.open, settings.tracking_uri, settings.experiment, settings.runs
        )
        num_gpus = stack.enter_context(settings.launcher.connect())
        tracker = opening.result()
    check_gpus(planned, settings.launcher, num_gpus)
    folder = _folder(planned, settings, progress.say)
    sender = Sender(tracker, folder, progress.say)
    return Sweep(planned, settings, folder, sender, progress, num_gpus, begun)


def check_gpus(planned: Sequence[PlannedCell], launcher: Launcher, num_gpus: int) -> None:
    """Refuse cells that would wait forever for GPUs.

    Args:
        planned: Cells, of which the impossible ones need nothing.
        launcher: Where they would run.
        num_gpus: GPUs there.

    Raises:
        ValueError: A cell needs more.
    """
    for plan in planned:
        need = launcher.gpus_per_cell or plan.gpus
        if need <= num_gpus or plan.impossible:
            continue
        needs = f"{plan.cell.label} needs {need} GPU{'s' * (need > 1)}"
        if num_gpus:
            raise ValueError(
                f"{needs} and launcher.address={launcher.address} has {num_gpus}; lower"
                " parallelism.tp or launcher.gpus_per_cell"
            )
        raise ValueError(
            f"{needs} and none is visible at launcher.address={launcher.address}; run it on the GPU"
            f" box (launcher=cluster launcher.address=HOST:PORT), or {_without_gpu(plan)}"
        )


def _without_gpu(plan: PlannedCell) -> str:
    """Say what a cell can do on a machine without a GPU."""
    if not plan.gpus:
        return "set launcher.gpus_per_cell=0"
    if isinstance(plan.cell.engine, DescribesStart):
        return "print what it would start with dry_run=true, or use engine=torch"
    return "use engine.device=cpu"


def _make_writable(runs: Path) -> None:
    """Make the folder of runs."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"runs={runs}: cannot be made ({error.strerror}); choose another"
        ) from None
    if not os.access(runs, os.W_OK | os.X_OK):
        raise ValueError(f"runs={runs}: no permission to write there; choose another folder")


def _folder(
    planned: Sequence[PlannedCell], settings: Settings, say: Callable[[str], None]
) -> SweepFolder:
    """Return the folder to continue, or a new one."""
    ids = [plan.cell.cell_id for plan in planned]
    origin = provenance()
    folder = newest_sweep(settings.runs, ids) if settings.resume else None
    if folder is None:
        if settings.resume:
            say(
                f"resume=true: {settings.runs} has no sweep of exactly these cells;"
                " a new one begins"
            )
        facts = {"provenance": origin, "settings": settings.facts, "tracking": settings.tracking}
        folder = create_sweep(settings.runs, ids, **facts)
        write_atomically(folder.path / "config.yaml", settings.config)
        return folder
    before = folder.facts["provenance"]
    for fact in MACHINE:
        if before.get(fact) != origin.get(fact):
            raise ValueError(
                f"resume=true: sweep {folder.sweep_id} began on {fact}={before.get(fact)}, this"
                f" machine has {origin.get(fact)}; times do not compare, use resume=false"
            )
    return folder


@contextlib.contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end a sweep as Ctrl-C does; Ray's own handler would exit at once."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
        self.progress.num_cells = len(running_cells)
        self.progress.say(f"{self.folder.path}: {len(running_cells)} cells to measure, {kept} kept")
        share = (time.perf_counter() - self.begun) / max(1, len(running_cells))
        for running in running_cells:
            running.spend("orchestrate", share)
            save_record(running.record, running.folder)
        self.sender.begin()
        scheduler = self._scheduler()
        groups = Groups(self.planned, self.folder, self.settings.launcher, self.num_gpus)
        try:
            for group in groups.cut(running_cells):
                scheduler.run(group)
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
        """Return a planned cell with what an earlier run kept, or None if nothing is left to do."""
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
        """Return the scheduler of this sweep's groups."""
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
        """Write the report, complete MLflow, and say what there is to see and what does not count.

        Returns:
            1 where a cell failed or is void, else 0.
        """
        records = self.folder.records()
        failed = [record for record in records if record.status is Status.FAILED]
        void = [record for record in judge(records) if record.status is Status.VOID]
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
            name = self.progress.name(record)
            self.progress.say(_failure(name, record, self.folder.cell(record.cell_id)))
        for record in void:
            self.progress.say(f"void: {self.progress.name(record)}: {record.reason}")
        self.progress.say(f"report: {report}")
        self.progress.say(f"dashboard: {self.settings.dashboard(self.sender.tracker.page)}")
        return FAILED if failed or void else OK


def _failure(name: str, record: CellRecord, folder: Path) -> str:
    """Return a failed cell's line, the end of its log, and how to run it again."""
    lines = "".join(f"    {line}\n" for line in record.log_tail.splitlines()[-8:])
    return f"failed: {name}: {record.reason}\n{lines}    log: {folder / 'worker.log'}"
