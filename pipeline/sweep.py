"""One sweep: a grid becomes a folder of records, MLflow runs and a report.

The order is what keeps a sweep safe: everything is checked, then the machine is locked, then
workers run, and each result is on disk before it is anywhere else.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from pipeline.build import Planned, build_cells, build_part
from pipeline.lane import Lane, Worker
from pipeline.launcher import RayLauncher
from pipeline.lock import machine_lock
from pipeline.progress import Progress
from pipeline.provenance import MACHINE, provenance
from pipeline.reaper import reaping
from pipeline.record import CellRecord, Status, save_record
from pipeline.report import terminal_table, write_report
from pipeline.store import SweepFolder, create_sweep, newest_sweep
from pipeline.track import Sender, Tracker, tracking_uri
from pipeline.turns import Measuring, Turns

OK, FAILED, REFUSED, STOPPED = 0, 1, 2, 130  # exit statuses
KEPT = (Status.OK, Status.VOID)  # what a resumed sweep does not measure again


@dataclass(frozen=True)
class Settings:
    """What a sweep is told beside its cells.

    Attributes:
        runs: Folder of all sweeps.
        resume: Continue the newest sweep of the same cells.
        seed: Shuffles the order of repetitions.
    """

    runs: Path
    resume: bool
    launcher: RayLauncher
    measuring: Measuring
    tracking_uri: str
    experiment: str
    seed: int = 0

    @classmethod
    def read(cls, config: DictConfig) -> Settings:
        """Read them from a composed config.

        Raises:
            ValueError: A value is out of its range; the text names the setting.
        """
        runs = Path(config.runs).expanduser().absolute()
        if config.cache:
            os.environ["SPECROI_CACHE"] = str(config.cache)  # for the workers
        return cls(
            runs=runs,
            resume=config.resume,
            launcher=build_part(config, "launcher"),
            measuring=Measuring(**config.measurement),
            tracking_uri=tracking_uri(config.tracking.uri, runs),
            experiment=config.tracking.experiment,
            seed=config.sampling.seed,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What `sweep.json` keeps of them."""
        return {
            "command": shlex.join(["python", "-m", "pipeline", *sys.argv[1:]]),
            "precision": self.measuring.precision,
            "launcher": self.launcher.address,
        }


def launch(configs: Sequence[DictConfig], overrides: Sequence[Sequence[str]]) -> int:
    """Run the jobs of a multirun as one sweep; return the exit status of the process."""
    begun = time.perf_counter()
    try:
        settings = Settings.read(configs[0])
        planned = build_cells(configs, overrides, configs[0].on_impossible)
    except ValueError as refusal:
        sys.stderr.write(f"{refusal}\n")
        return REFUSED
    return run_sweep(planned, settings, begun)


def run_sweep(planned: Sequence[Planned], settings: Settings, begun: float) -> int:
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
            sys.stderr.write(f"{refusal}\n")
            return REFUSED
        stack.enter_context(_sigterm_as_interrupt())
        return sweep.run()
    return STOPPED


def _prepare(
    stack: contextlib.ExitStack, planned: Sequence[Planned], settings: Settings, begun: float
) -> Sweep:
    """Take the machine, start Ray, open MLflow meanwhile, and find or make the folder.

    Raises:
        ValueError: One of these cannot be had; nothing of the grid has run.
    """
    _make_writable(settings.runs)
    asked = time.perf_counter()
    progress = Progress(len(planned), settings.measuring.min_repetitions, sys.stdout)
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
    _check_gpus(planned, settings.launcher, num_gpus)
    folder = _folder(planned, settings)
    sender = Sender(tracker, folder, progress.say)
    return Sweep(planned, settings, folder, sender, progress, num_gpus, begun)


def _make_writable(runs: Path) -> None:
    """Make the folder of runs."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"runs={runs}: cannot be made ({error.strerror}); choose another") from None
    if not os.access(runs, os.W_OK | os.X_OK):
        raise ValueError(f"runs={runs}: no permission to write there; choose another folder")


def _check_gpus(planned: Sequence[Planned], launcher: RayLauncher, num_gpus: int) -> None:
    """Refuse cells that would wait forever for GPUs."""
    for plan in planned:
        need = launcher.gpus_per_cell or plan.gpus
        if need > num_gpus and not plan.impossible:
            raise ValueError(
                f"{plan.cell.label} needs {need} GPUs and launcher.address={launcher.address} has"
                f" {num_gpus}; lower parallelism.tp or launcher.gpus_per_cell"
            )


def _folder(planned: Sequence[Planned], settings: Settings) -> SweepFolder:
    """Return the folder to continue, or a new one."""
    ids = [plan.cell.cell_id for plan in planned]
    origin = provenance()
    folder = newest_sweep(settings.runs, ids) if settings.resume else None
    if folder is None:
        where = {
            "uri": settings.tracking_uri,
            "experiment": settings.experiment,
            "runs": str(settings.runs),
        }
        return create_sweep(
            settings.runs, ids, provenance=origin, settings=settings.facts, tracking=where
        )
    before = folder.facts["provenance"]
    for fact in MACHINE:
        if before.get(fact) != origin.get(fact):
            raise ValueError(
                f"resume=true: sweep {folder.sweep_id} began on {fact}={before.get(fact)}, this"
                f" machine has {origin.get(fact)}; times do not compare, use resume=false"
            )
    return folder


@dataclass(frozen=True)
class Sweep:
    """A sweep that is ready to run.

    Attributes:
        num_gpus: GPUs that Ray has.
        begun: `time.perf_counter` when the sweep's own work began.
    """

    planned: Sequence[Planned]
    settings: Settings
    folder: SweepFolder
    sender: Sender
    progress: Progress
    num_gpus: int
    begun: float

    def run(self) -> int:
        """Measure what is not measured yet, report all, and return the exit status."""
        lanes = [lane for plan in self.planned if (lane := self._lane(plan)) is not None]
        kept = len(self.planned) - len(lanes)
        self.progress.expect(len(lanes))
        self.progress.say(f"{self.folder.path}: {len(lanes)} cells to measure, {kept} kept")
        share = (time.perf_counter() - self.begun) / max(1, len(lanes))
        for lane in lanes:
            lane.spend("orchestrate", share)
            save_record(lane.record, lane.folder)
        turns = self._turns()
        try:
            for group in self._groups(lanes):
                turns.run(group)
        except KeyboardInterrupt:
            self.folder.note(ended="KILLED")
            self.sender.finish("KILLED")
            self.progress.say("stopped; the same command with resume=true runs only the rest")
            return STOPPED
        return self._finish()

    def _lane(self, plan: Planned) -> Lane | None:
        """Return the cell's lane, or None if there is nothing to measure."""
        folder = self.folder.cell(plan.cell.cell_id)
        found = self.folder.record(plan.cell.cell_id)
        if found is not None and found.status in KEPT:
            return None
        if plan.impossible:
            save_record(plan.record.ended(Status.SKIPPED, plan.impossible), folder)
            return None
        if found is not None and found.status is Status.UNFINISHED:
            return Lane(plan, folder, found, earlier=found.proof)
        self.folder.forget(plan.cell.cell_id)
        return Lane(plan, folder, plan.record)

    def _turns(self) -> Turns:
        """Return what measures a group of cells."""
        launcher = self.settings.launcher

        def spawn(lane: Lane) -> Worker:
            mark = f"{self.folder.sweep_id}/{lane.record.cell_id}"
            return launcher.spawn(mark, lane.plan.gpus, lane.log)

        return Turns(
            spawn=spawn,
            measuring=self.settings.measuring,
            start_timeout_s=launcher.start_timeout_s,
            repetition_timeout_s=launcher.repetition_timeout_s,
            progress=self.progress,
            on_end=lambda lane: self.sender.cell(lane.record),
            seed=self.settings.seed,
        )

    def _groups(self, lanes: Sequence[Lane]) -> Iterator[list[Lane]]:
        """Cut into groups that are loaded together: as many as may be, and as the GPUs hold."""
        launcher, group = self.settings.launcher, list[Lane]()
        for lane in lanes:
            gpus = sum(launcher.gpus_per_cell or each.plan.gpus for each in [*group, lane])
            full = len(group) == launcher.resident or gpus > self.num_gpus
            if group and (full or not all(each.plan.resident for each in [*group, lane])):
                yield group
                group = []
            group = [*group, lane]
        if group:
            yield group

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
        self.progress.say(f"dashboard: {dashboard(self.settings.tracking_uri)}")
        return FAILED if failed else OK


def _failure(record: CellRecord, folder: Path) -> str:
    """Return a failed cell's line, the end of its log, and how to run it again."""
    lines = "".join(f"    {line}\n" for line in record.log_tail.splitlines()[-8:])
    return f"failed: {record.label}: {record.reason}\n{lines}    log: {folder / 'worker.log'}"


def dashboard(uri: str) -> str:
    """Return how to look at the runs."""
    if uri.startswith("http"):
        return uri
    return f"mlflow ui --host 127.0.0.1 --backend-store-uri {uri}"


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
