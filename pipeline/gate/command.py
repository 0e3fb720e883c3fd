"""The three modes of the command: compare side by side, compare with a reference, record one.

Each goes from the settings over a measurement to files, MLflow and an exit status.
"""

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
from pipeline.config.messages import one_line
from pipeline.gate import reference as references
from pipeline.gate.arm import Arm, arm
from pipeline.gate.outcome import Outcome, github_lines, terminal, write_all
from pipeline.gate.reference import Reference, compare_recorded, grid_digest, new_reference
from pipeline.gate.settings import GateSettings
from pipeline.gate.side_by_side import find_trees, measure_side_by_side
from pipeline.gate.tracking import drifts, find_reference, log_outcome, save_reference
from pipeline.gate.validity import fault, refusals
from pipeline.machine.cache import cache_root
from pipeline.machine.lock import machine_lock
from pipeline.machine.provenance import here
from pipeline.machine.reaper import reaping
from pipeline.measure.wording import cell_names
from pipeline.record.record import CellRecord, Status
from pipeline.record.sweep_folder import newest_sweep
from pipeline.sweep.build import build_cells
from pipeline.sweep.launch import STOPPED, run_sweep
from pipeline.sweep.settings import REFUSED, Settings
from pipeline.target.tokenizer import Tokenizer
from pipeline.track import Tracker, TrackerAway

MLFLOW = "mlflow"


def run_side_by_side(settings: GateSettings) -> int:
    """Measure candidate and baseline side by side; return the exit status.

    A version that is not there is refused before the lock is taken or a folder is made.
    """
    trees = find_trees(settings)
    context = Context.of(settings)
    with ExitStack() as stack:
        launcher = context.sweep.launcher
        holder = f"gate into {context.folder}"
        lock = stack.enter_context(machine_lock(holder, launcher.on_busy, _say))
        stack.enter_context(reaping(f"gate-{os.getpid()}-{time.time_ns()}", lock))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        opening = pool.submit(context.tracker)  # while the versions load
        outcome = measure_side_by_side(
            settings, trees, launcher, context.text, context.folder, _say
        )
    return _finish(context, outcome, opening.result)


def run_against(settings: GateSettings) -> int:
    """Measure the candidate and compare it with a recorded reference; return the exit status."""
    begun = time.monotonic()
    _only_this_tree(settings)
    file = None if settings.reference == MLFLOW else references.read(settings.reference)
    context, machine = Context.of(settings), here()
    tracker = context.tracker()
    reference = file or find_reference(tracker, context.grid, machine)
    jobs = settings.jobs_on(reference.threads)
    measured = measure_grid(compose_each(jobs), jobs, context.sweep)
    outcome = compare_recorded(
        measured.arms, measured.failures, reference, machine, settings, context.text
    )
    return _finish(context, replace(outcome, seconds=time.monotonic() - begun), lambda: tracker)


def record_reference(settings: GateSettings) -> int:
    """Measure the grid and keep it as the reference, unless it must not become one.

    The file is written before MLflow is told, which may be away by then.
    """
    _only_this_tree(settings)
    path = Path(settings.record_to).expanduser() if settings.record_to else None
    earlier = references.read(str(path), "record_to") if path and path.exists() else None
    context, machine = Context.of(settings), here()
    tracker = context.tracker()
    measured = measure_grid(context.configs, settings.jobs, context.sweep)
    arms = measured.arms
    if refused := refusals(arms, measured.records, settings.allow_below_break_even):
        sys.stderr.write("".join(f"gate.record=true: {line}\n" for line in refused))
        return REFUSED
    recorded = new_reference(arms, machine)
    if path is not None:
        _write(recorded, earlier, path)
    run = save_reference(tracker, recorded, context.grid, measured.sweep_id)
    _say(f"recorded in MLflow: run {run}, found by reference=mlflow")
    return 0


def _write(recorded: Reference, earlier: Reference | None, path: Path) -> None:
    """Write a reference to a file, with the earlier runs of equal responses that it holds."""
    if earlier is not None:
        differences = earlier.differences(recorded)
        for line in differences:
            _say(f"replaced in {path}, since it was of another: {line}")
        recorded = recorded if differences else earlier.with_run(recorded)
    references.write(recorded, str(path))
    _say(f"recorded in {path}: {len(recorded.runs)} runs; 6 let their own spread count")


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

    A verdict does not depend on MLflow: where that fails in any way, a note says so.
    """
    write_all(outcome, context.folder)
    try:
        outcome = _logged(context, outcome, tracker())
    except Exception as error:  # noqa: BLE001 - MLflow, its store and their libraries raise what they like
        reason = str(error) if isinstance(error, (TrackerAway, ValueError)) else one_line(error)
        outcome = replace(outcome, notes=[*outcome.notes, f"not logged, no trend: {reason}"])
    sys.stdout.write(f"\n{terminal(outcome)}\n\nfiles: {context.folder}\n{github_lines(outcome)}")
    return outcome.status


def _logged(context: Context, outcome: Outcome, tracker: Tracker) -> Outcome:
    """Log a run; return its outcome with the drifts that the runs before it show."""
    machine, runs = here(), context.settings.trend
    if runs and outcome.figures:
        lines = drifts(tracker, outcome, context.grid, machine, runs)
        outcome = replace(outcome, notes=[*outcome.notes, *lines])
        write_all(outcome, context.folder)
    log_outcome(tracker, outcome, context.grid, machine, context.folder)
    return outcome


def _say(text: str) -> None:
    """Print a line of progress at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Context:
    """The parts that every mode needs.

    Attributes:
        settings: The gate's settings.
        configs: The composed config of each cell.
        sweep: The settings of a sweep of the same cells: folder of runs, launcher, MLflow.
        folder: The folder that this run writes its files into.
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
        """The digest that names the grid."""
        return grid_digest(self.settings.cell_jobs)

    def tracker(self) -> Tracker:
        """Open MLflow."""
        return Tracker.open(self.sweep.tracking_uri, self.sweep.experiment, self.sweep.runs)

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        """The target's tokenizer, read when the first token is shown; None for a random target."""
        target = build_part(self.configs[0], "target")
        return None if target.is_random else target.tokenizer(cache_root())

    def text(self, token: int) -> str:
        """Return a token's text by its id; "" for a random target."""
        return "" if self._tokenizer is None else self._tokenizer.decode([token])


@dataclass(frozen=True)
class Measured:
    """A grid that a sweep has measured.

    Attributes:
        records: The record of each cell.
        sweep_id: The sweep's name, on disk and in MLflow.
    """

    records: tuple[CellRecord, ...]
    sweep_id: str

    @property
    def arms(self) -> list[Arm]:
        """The cells that ran, as arms."""
        names = cell_names(self.records)
        ran = [r for r in self.records if r.proof is not None and r.repetitions]
        return [
            arm(r, names[r.cell_id], fault(r, r.reason if r.status is Status.VOID else "", ran))
            for r in ran
        ]

    @property
    def failures(self) -> list[str]:
        """A line for each cell that did not run to its end."""
        kept = (Status.OK, Status.VOID)
        return [f"{r.label} {r.status}: {r.reason}" for r in self.records if r.status not in kept]


def measure_grid(
    configs: Sequence[DictConfig], jobs: Sequence[Job], settings: Settings
) -> Measured:
    """Run the cells as a sweep and return its records.

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
