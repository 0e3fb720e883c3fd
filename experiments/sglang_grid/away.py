r"""Plan a grid here, measure it on a GPU box that has neither Ray nor MLflow, and log it here.

    python -m experiments.sglang_grid.away plan away "drafter=none,ngram" \
        "verify=extend,graph_captured" engine=sglang engine.version=0.5.17 …
    PYTHONPATH=away/site:$PYTHONPATH \
        python3 -m experiments.sglang_grid.away measure away/plan.pkl OUT
    python -m experiments.sglang_grid.away log OUT [RUNS]

The first writes away/plan.pkl and away/site, the second runs there, and the third writes MLflow and
report here, in runs/.

The same turns, records and checks as `python -m pipeline`; only the processes differ: SGLang's
server is one by itself, so that cells run in the measuring process.
"""

from __future__ import annotations

import importlib.util
import pickle
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.record.sweep_folder import SweepFolder
    from pipeline.sweep.build import PlannedCell
    from pipeline.sweep.running_cell import RunningCell
    from pipeline.sweep.scheduler import Scheduler
    from pipeline.sweep.stop_rule import StopRule

SITE = ("hydra", "omegaconf", "antlr4")  # pure Python; the rest of what measuring needs is small
START_S = REPETITION_S = 600.0


def plan(folder: Path, overrides: list[str]) -> None:
    """Build and check the grid, and write what the box needs."""
    from pipeline.config.compose import compose_each, expand
    from pipeline.sweep.build import build_cells
    from pipeline.sweep.stop_rule import StopRule

    jobs = expand(overrides)
    configs = compose_each(jobs)
    planned = build_cells(configs, jobs, configs[0].on_impossible)
    folder.mkdir(parents=True, exist_ok=True)
    stop_rule = StopRule(**configs[0].measurement)
    (folder / "plan.pkl").write_bytes(pickle.dumps((planned, stop_rule)))
    for name in SITE:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        shutil.copytree(Path(found.origin).parent, folder / "site" / name, dirs_exist_ok=True)
    print(f"{folder}: {len(planned)} cells")


@dataclass
class Here:
    """A worker in this process."""

    environment: dict[str, str]
    log: Path
    run: Any = None
    phase: tuple[str, tuple[Any, ...]] = ("", ())

    def begin(self, phase: str, *arguments: Any) -> None:
        """Note the phase; it runs when its result is asked for."""
        self.phase = (phase, arguments)

    def result(self, timeout_s: float) -> Any:
        """Run the phase."""
        from pipeline.config.messages import one_line
        from pipeline.sweep.cell_process import CellProcess
        from pipeline.sweep.running_cell import WorkerFailed

        name, arguments = self.phase
        self.run = self.run or CellProcess(self.environment)
        try:
            return getattr(self.run, name)(*arguments)
        except (OSError, RuntimeError, ValueError) as error:
            raise WorkerFailed(f"{name} raised {one_line(error)}") from None

    def kill(self) -> None:
        """Stop the server, if there is one."""
        from pipeline.sweep.running_cell import WorkerFailed

        if self.run is not None:
            self.begin("stop")
            try:
                self.result(0)
            except WorkerFailed as failure:
                print(failure)


def measure(path: Path, runs: Path) -> None:
    """Measure every cell that can run, one after the other."""
    from pipeline.sweep.running_cell import RunningCell

    planned, stop_rule = pickle.loads(path.read_bytes())
    sweep = new_sweep(runs, planned)
    turns = scheduler_of(stop_rule, len(planned), lambda running: Here({}, running.log))
    for each in planned:
        if end_skipped(each, sweep):
            continue
        running = RunningCell(each, sweep.cell(each.cell.cell_id), each.record)
        turns.run([running])
        print(
            f"{running.record.label}: {running.record.status} {running.record.reason}", flush=True
        )
    sweep.note(ended="FINISHED")


def new_sweep(runs: Path, planned: Sequence[PlannedCell]) -> SweepFolder:
    """Make the folder of a sweep that is to be logged elsewhere."""
    from pipeline.machine.provenance import provenance
    from pipeline.record.sweep_folder import create_sweep

    ids = [each.cell.cell_id for each in planned]
    facts = {"provenance": provenance(), "settings": {"command": "experiments.sglang_grid.away"}}
    tracking = {"uri": "", "experiment": "specroi", "runs": "runs"}
    return create_sweep(runs, ids, **facts, tracking=tracking)


def scheduler_of(
    stop_rule: StopRule, count: int, spawn: Callable[[RunningCell], Here]
) -> Scheduler:
    """Return what measures `count` cells."""
    from pipeline.sweep.progress import Progress
    from pipeline.sweep.scheduler import Scheduler

    return Scheduler(
        spawn=spawn,
        stop_rule=stop_rule,
        start_timeout_s=START_S,
        repetition_timeout_s=REPETITION_S,
        progress=Progress(count, stop_rule.min_repetitions, sys.stdout),
        on_end=lambda running: None,
        seed=0,
    )


def end_skipped(planned: PlannedCell, sweep: SweepFolder) -> bool:
    """Record a cell that cannot run; return whether it was one."""
    from pipeline.record.record import Status, save_record

    if planned.impossible:
        record = planned.record.ended(Status.SKIPPED, planned.impossible)
        save_record(record, sweep.cell(planned.cell.cell_id))
    return bool(planned.impossible)


def log(out: Path, runs: Path) -> None:
    """Bring sweeps that were measured elsewhere into a folder of runs, its MLflow, and reports."""
    from pipeline.record.sweep_folder import SweepFolder
    from pipeline.report import write_report
    from pipeline.track.tracker import sync

    for found in sorted(out.glob("sweeps/*")):
        folder = runs / "sweeps" / found.name
        shutil.copytree(found, folder, dirs_exist_ok=True)
        sweep = SweepFolder(folder)
        uri = f"sqlite:///{runs / 'mlflow.db'}"
        sweep.note(tracking={"uri": uri, "experiment": "specroi", "runs": str(runs)})
        print(write_report(sweep.records(), folder, sweep.facts["provenance"]))
        print(f"logged to {sync(folder)}")


if __name__ == "__main__":
    verb, target, *rest = sys.argv[1:]
    if verb == "plan":
        plan(Path(target), rest)
    elif verb == "measure":
        measure(Path(target), Path(rest[0]))
    else:
        log(Path(target), Path(rest[0] if rest else "runs").absolute())
