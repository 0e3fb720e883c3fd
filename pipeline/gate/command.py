"""What the command does in each of its modes, from settings to files and MLflow."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pipeline.config.compose import compose_each
from pipeline.gate import reference as references
from pipeline.gate.against_recorded import compare_recorded
from pipeline.gate.context import Context
from pipeline.gate.machine import here
from pipeline.gate.measured import measure_grid
from pipeline.gate.outcome import Outcome
from pipeline.gate.reference import Reference, new_reference
from pipeline.gate.refuse import refusals
from pipeline.gate.settings import GateSettings
from pipeline.gate.side_by_side import run_beside
from pipeline.gate.tracking import drifts, find_reference, log_outcome, save_reference
from pipeline.gate.write import github_lines, terminal, write_all
from pipeline.machine.lock import machine_lock
from pipeline.machine.reaper import reaping
from pipeline.track import Tracker, TrackerAway

MLFLOW = "mlflow"
REFUSED = 2


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
        outcome = run_beside(settings, launcher, context.text, context.folder, _say)
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
        apart = earlier.apart(found)
        for line in apart:
            _say(f"replaced in {path}, since it was of another: {line}")
        found = found if apart else earlier.with_run(found)
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
