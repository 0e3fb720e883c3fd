"""What the command does in each of its modes, from settings to files and MLflow."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from omegaconf import DictConfig

from pipeline.config.compose import Job, compose_each
from pipeline.config.instantiate import build_part
from pipeline.gate import reference as references
from pipeline.gate.against_recorded import compare_recorded
from pipeline.gate.arm import Arm, arm
from pipeline.gate.exact import Text
from pipeline.gate.outcome import Outcome
from pipeline.gate.reference import Reference, grid_digest, new_reference
from pipeline.gate.settings import GateSettings
from pipeline.gate.side_by_side import measure_side_by_side
from pipeline.gate.tracking import drifts, find_reference, log_outcome, save_reference
from pipeline.gate.validity import fault, refusals
from pipeline.gate.write import github_lines, terminal, write_all
from pipeline.machine.cache import cache_root
from pipeline.machine.lock import machine_lock
from pipeline.machine.provenance import here
from pipeline.machine.reaper import reaping
from pipeline.measure.wording import cell_names
from pipeline.record.record import CellRecord, Status
from pipeline.record.sweep_folder import newest_sweep
from pipeline.sweep.build import build_cells
from pipeline.sweep.launch import run_sweep
from pipeline.sweep.settings import REFUSED, Settings
from pipeline.sweep.sweep import STOPPED
from pipeline.target.tokenizer import Tokenizer
from pipeline.track import Tracker, TrackerAway

MLFLOW = "mlflow"


def run_side_by_side(settings: GateSettings) -> int:
    """Measure the candidate beside the baseline."""
    context = Context.of(settings)
    with ExitStack() as stack:
        busy = context.sweep.launcher.on_busy
        lock = stack.enter_context(machine_lock(f"gate into {context.folder}", busy, _say))
        stack.enter_context(reaping(f"gate-{os.getpid()}-{time.time_ns()}", lock))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        opening = pool.submit(context.tracker)  # while the versions load
        launcher = context.sweep.launcher
        outcome = measure_side_by_side(settings, launcher, context.text, context.folder, _say)
    return _finish(context, outcome, opening.result)


def run_against(settings: GateSettings) -> int:
    """Measure the candidate and compare it with a recorded reference."""
    begun = time.monotonic()
    _only_this_tree(settings)
    context, machine = Context.of(settings), here()
    tracker = context.tracker()
    if settings.reference == MLFLOW:
        reference = find_reference(tracker, context.grid, machine)
    else:
        reference = references.read(settings.reference)
    jobs = settings.jobs_on(reference.threads)
    measured = measure_grid(compose_each(jobs), jobs, context.sweep)
    outcome = compare_recorded(
        measured.arms, measured.failures, reference, machine, settings, context.text
    )
    return _finish(context, replace(outcome, seconds=time.monotonic() - begun), lambda: tracker)


def record_reference(settings: GateSettings) -> int:
    """Measure the grid and keep it as the reference, unless it must not become one."""
    _only_this_tree(settings)
    context, machine = Context.of(settings), here()
    tracker = context.tracker()
    measured = measure_grid(context.configs, settings.jobs, context.sweep)
    arms = measured.arms
    if refused := refusals(arms, measured.records, settings.allow_below_break_even):
        sys.stderr.write("".join(f"gate.record=true: {line}\n" for line in refused))
        return REFUSED
    found = new_reference(arms, machine)
    run = save_reference(tracker, found, context.grid, measured.sweep_id)
    _say(f"recorded in MLflow: run {run}, found by reference=mlflow")
    if settings.record_to:
        _write(found, settings.record_to)
    return 0


def _write(found: Reference, path: str) -> None:
    """Add the run to a file of equal answers, or write a new one."""
    if Path(path).expanduser().exists():
        earlier = references.read(path)
        differences = earlier.differences(found)
        for line in differences:
            _say(f"replaced in {path}, since it was of another: {line}")
        found = found if differences else earlier.with_run(found)
    references.write(found, path)
    _say(f"recorded in {path}: {len(found.runs)} runs; 6 let their own spread count")


def _only_this_tree(settings: GateSettings) -> None:
    """Refuse another folder where a sweep runs: it is of the code that runs the gate.

    Raises:
        ValueError: The candidate is another folder.
    """
    here_is = Path(__file__).parents[2]
    if Path(settings.candidate).expanduser().resolve() != here_is.resolve():
        raise ValueError(
            f"candidate={settings.candidate}: with reference or gate.record the version is the one"
            f" that runs the gate ({here_is}); start it in that folder, or give baseline=GIT_REF"
        )


def _finish(context: Context, outcome: Outcome, tracker: Callable[[], Tracker]) -> int:
    """Write all, log it with the trend, and return the exit status.

    A verdict does not depend on MLflow: where that is away, a note says so.
    """
    write_all(outcome, context.folder)
    try:
        outcome = _logged(context, outcome, tracker())
    except (TrackerAway, ValueError) as reason:
        outcome = replace(outcome, notes=[*outcome.notes, f"not logged, no trend: {reason}"])
    sys.stdout.write(f"\n{terminal(outcome)}\n\nfiles: {context.folder}\n{github_lines(outcome)}")
    return outcome.status


def _logged(context: Context, outcome: Outcome, tracker: Tracker) -> Outcome:
    """Log a run and return its outcome with what the runs before it add."""
    machine, runs = here(), context.settings.trend
    if runs and outcome.figures:
        found = drifts(tracker, outcome, context.grid, machine, runs)
        outcome = replace(outcome, notes=[*outcome.notes, *found])
        write_all(outcome, context.folder)
    log_outcome(tracker, outcome, context.grid, machine, context.folder)
    return outcome


def _say(text: str) -> None:
    """Print a line on what goes on."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Context:
    """What all modes need.

    Attributes:
        settings: What the gate is told.
        configs: The composed config of each cell.
        sweep: What a sweep of the same cells would be told: folder of runs, launcher, MLflow.
        folder: For what this run writes.
    """

    settings: GateSettings
    configs: list[DictConfig]
    sweep: Settings
    folder: Path

    @classmethod
    def of(cls, settings: GateSettings) -> Context:
        """Compose the cells and make the folder.

        Raises:
            ValueError: A setting is unknown, or a cell is not greedy.
        """
        configs = compose_each(settings.jobs)
        for config in configs:
            if config.sampling.temperature or config.sampling.held_accept_length:
                raise ValueError(
                    "the gate compares outputs token by token: set sampling.temperature=0 and"
                    " sampling.held_accept_length=0"
                )
        sweep = Settings.read(configs[0])
        name = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
        folder = Path(settings.output).expanduser().absolute() if settings.output else None
        folder = folder or sweep.runs / "gate" / name
        folder.mkdir(parents=True, exist_ok=True)
        return cls(settings, configs, sweep, folder)

    @property
    def grid(self) -> str:
        """The grid's name."""
        return grid_digest(self.settings.cell_jobs)

    def tracker(self) -> Tracker:
        """Open MLflow."""
        return Tracker.open(self.sweep.tracking_uri, self.sweep.experiment, self.sweep.runs)

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        """The target's tokenizer; read when the first token is shown."""
        target = build_part(self.configs[0], "target")
        return None if target.is_random else target.tokenizer(cache_root())

    @property
    def text(self) -> Text:
        """What gives a token's text by its id."""

        def decode(token: int) -> str:
            return "" if self._tokenizer is None else self._tokenizer.decode([token])

        return decode


@dataclass(frozen=True)
class Measured:
    """A measured grid.

    Attributes:
        records: The cells as the sweep left them.
        sweep_id: The sweep, on disk and in MLflow.
    """

    records: tuple[CellRecord, ...]
    sweep_id: str

    @property
    def arms(self) -> list[Arm]:
        """The cells that ran."""
        names = cell_names(self.records)
        ran = [r for r in self.records if r.proof is not None and r.repetitions]
        return [
            arm(r, names[r.cell_id], fault(r, r.reason if r.status is Status.VOID else "", ran))
            for r in ran
        ]

    @property
    def failures(self) -> list[str]:
        """Cells that did not run to their end."""
        kept = (Status.OK, Status.VOID)
        return [f"{r.label} {r.status}: {r.reason}" for r in self.records if r.status not in kept]


def measure_grid(
    configs: Sequence[DictConfig], jobs: Sequence[Job], settings: Settings
) -> Measured:
    """Run the cells as a sweep and return what it left.

    Raises:
        ValueError: A cell cannot be built.
        SystemExit: The sweep could not start, or was stopped; it has said why.
    """
    planned = build_cells(configs, jobs, configs[0].on_impossible)
    status = run_sweep(planned, settings, time.perf_counter())
    folder = newest_sweep(settings.runs, [plan.cell.cell_id for plan in planned])
    if status in (REFUSED, STOPPED) or folder is None:
        raise SystemExit(status)
    return Measured(tuple(folder.records()), folder.sweep_id)
