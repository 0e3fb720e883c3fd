"""The driver process of a fault test: `drive.py RUNS CELLS [setting=value ...]`.

CELLS is `label[:breaks]` with commas. Only the cells' origin differs from `python -m pipeline`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tiny_engine import TinyEngine, plan

from pipeline.sweep import ray_launcher
from pipeline.sweep.launch import run_sweep
from pipeline.sweep.ray_launcher import RayLauncher
from pipeline.sweep.settings import Settings
from pipeline.sweep.stop_rule import StopRule


def main() -> int:
    begun = time.perf_counter()
    ray_launcher.SPAWN_TIMEOUT_S = 600.0  # a busy machine takes long to start a process of Ray's
    runs, cells, *rest = sys.argv[1:]
    given = dict(item.split("=", 1) for item in rest)
    pairs = [text.partition(":") for text in cells.split(",")]
    settings = Settings(
        runs=Path(runs),
        resume=given.get("resume") == "true",
        launcher=RayLauncher(
            repetition_timeout_s=float(given.get("timeout", 60)),
            on_busy=given.get("on_busy", "refuse"),
        ),
        stop_rule=StopRule(min_repetitions=3, max_repetitions=3),
        tracking_uri=given.get("uri", f"sqlite:///{runs}/mlflow.db"),
        experiment="faults",
    )
    gate = given.get("gate", "")
    planned = [plan(TinyEngine(label, breaks, gate)) for label, _, breaks in pairs]
    return run_sweep(planned, settings, begun)


if __name__ == "__main__":
    sys.exit(main())
