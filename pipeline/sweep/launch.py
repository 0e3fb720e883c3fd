"""One sweep: a grid becomes a folder of records, MLflow runs and a report.

The order is what keeps a sweep safe: everything is checked, then the machine is locked, then
workers run, and each result is on disk before it is anywhere else.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from pipeline.config.messages import folded
from pipeline.machine.lock import machine_lock
from pipeline.machine.provenance import MACHINE, provenance
from pipeline.machine.reaper import reaping
from pipeline.record.record import write_atomically
from pipeline.record.sweep_folder import SweepFolder, create_sweep, newest_sweep
from pipeline.sweep.build import build_cells, dry_run
from pipeline.sweep.planned import PlannedCell, check_gpus
from pipeline.sweep.progress import Progress
from pipeline.sweep.settings import REFUSED, Settings, check_shared
from pipeline.sweep.sweep import OK, STOPPED, Sweep
from pipeline.track import Tracker
from pipeline.track.sender import Sender


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
    progress = Progress(len(planned), settings.stop_rule.min_repetitions, sys.stdout)
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
