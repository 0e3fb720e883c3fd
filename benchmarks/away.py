r"""Plan a grid here, measure it on a GPU box that has neither Ray nor MLflow, and log it here.

    python -m benchmarks.away plan away "drafter=none,ngram" "verify=extend,graph_captured" \
        engine=sglang engine.version=0.5.17 …         # writes away/plan.pkl and away/site
    PYTHONPATH=away/site:$PYTHONPATH python3 -m benchmarks.away measure away/plan.pkl OUT   # there
    python -m benchmarks.away log OUT                 # MLflow and report, here

The same turns, records and checks as `python -m pipeline`; only the processes differ: SGLang's
server is one by itself, so that cells run in the measuring process.
"""

from __future__ import annotations

import importlib.util
import itertools
import pickle
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SITE = ("hydra", "omegaconf", "antlr4")  # pure Python; the rest of what measuring needs is small
START_S = REPETITION_S = 600.0


def plan(folder: Path, overrides: list[str]) -> None:
    """Build and check the grid, and write what the box needs."""
    from hydra import compose, initialize_config_module

    from pipeline.build import build_cells
    from pipeline.measuring import Measuring

    axes = [choices(override) for override in overrides]
    jobs = [list(job) for job in itertools.product(*axes)]
    with initialize_config_module("conf", version_base=None):
        configs = [compose("config", overrides=job) for job in jobs]
    planned = build_cells(configs, jobs, configs[0].on_impossible)
    folder.mkdir(parents=True, exist_ok=True)
    measuring = Measuring(**configs[0].measurement)
    (folder / "plan.pkl").write_bytes(pickle.dumps((planned, measuring)))
    for name in SITE:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        shutil.copytree(Path(found.origin).parent, folder / "site" / name, dirs_exist_ok=True)
    print(f"{folder}: {len(planned)} cells")


def choices(override: str) -> list[str]:
    """Return one override for each value of a comma-separated one; a bracketed list is one."""
    key, _, values = override.partition("=")
    if values.startswith(("[", "{")):
        return [override]
    return [f"{key}={value}" for value in values.split(",")]


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
        from pipeline.lane import WorkerFailed
        from pipeline.run import CellRun

        name, arguments = self.phase
        self.run = self.run or CellRun(self.environment)
        try:
            return getattr(self.run, name)(*arguments)
        except (OSError, RuntimeError, ValueError) as error:
            raise WorkerFailed(f"{name} raised {type(error).__name__}: {error}") from None

    def kill(self) -> None:
        """Stop the server, if there is one."""
        from pipeline.lane import WorkerFailed

        if self.run is not None:
            self.begin("stop")
            try:
                self.result(0)
            except WorkerFailed as failure:
                print(failure)


def measure(path: Path, runs: Path) -> None:
    """Measure every cell that can run, one after the other."""
    from pipeline.lane import Lane
    from pipeline.progress import Progress
    from pipeline.provenance import provenance
    from pipeline.record import Status, save_record
    from pipeline.store import create_sweep
    from pipeline.turns import Turns

    planned, measuring = pickle.loads(path.read_bytes())
    ids = [each.cell.cell_id for each in planned]
    facts = {"provenance": provenance(), "settings": {"command": "benchmarks.away"}}
    tracking = {"uri": "", "experiment": "specroi", "runs": "runs"}
    folder = create_sweep(runs, ids, **facts, tracking=tracking)
    turns = Turns(
        spawn=lambda lane: Here({}, lane.log),
        measuring=measuring,
        start_timeout_s=START_S,
        repetition_timeout_s=REPETITION_S,
        progress=Progress(len(planned), measuring.min_repetitions, sys.stdout),
        on_end=lambda lane: None,
        seed=0,
    )
    for each in planned:
        lane = Lane(each, folder.cell(each.cell.cell_id), each.record)
        if each.impossible:
            save_record(each.record.ended(Status.SKIPPED, each.impossible), lane.folder)
            continue
        turns.run([lane])
        print(f"{lane.record.label}: {lane.record.status} {lane.record.reason}", flush=True)
    folder.note(ended="FINISHED")


def log(out: Path) -> None:
    """Bring a sweep that was measured elsewhere into runs/, MLflow and a report."""
    from pipeline.report import write_report
    from pipeline.store import SweepFolder
    from pipeline.track import sync

    runs = Path("runs").absolute()
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
        log(Path(target))
