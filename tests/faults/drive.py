"""The driver process of a fault test: `drive.py RUNS CELLS [setting=value ...]`.

CELLS is `label[:breaks]` with commas. Beside the grid's source this is the path of any sweep.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tiny_engine import TinyEngine

from drafters.none import NoDrafter
from pipeline.build import Planned
from pipeline.cell import Cell, Parallelism
from pipeline.engine.base import Prompt, Sampling
from pipeline.launcher import RayLauncher
from pipeline.sweep import Settings, run_sweep
from pipeline.target import Target
from pipeline.track import tracking_uri
from pipeline.turns import Measuring
from pipeline.workload import Jsonl
from verify.extend import Extend

PROMPTS = tuple(Prompt(f"p{i}", "chat", (1, 2, 3)) for i in range(3))


def main() -> int:
    begun = time.perf_counter()
    runs, grid, *rest = sys.argv[1:]
    given = dict(item.split("=", 1) for item in rest)
    planned = [_plan(text, given.get("gate", "")) for text in grid.split(",")]
    settings = Settings(
        runs=Path(runs),
        resume=given.get("resume") == "true",
        launcher=RayLauncher(
            repetition_timeout_s=float(given.get("timeout", 60)),
            resident=int(given.get("resident", 8)),
            on_busy=given.get("on_busy", "refuse"),
        ),
        measuring=Measuring(min_repetitions=3, max_repetitions=3),
        tracking_uri=tracking_uri(given.get("uri"), Path(runs)),
        experiment="faults",
    )
    return run_sweep(planned, settings, begun)


def _plan(text: str, gate: str) -> Planned:
    label, _, breaks = text.partition(":")
    broken = breaks and not Path(gate or ".", "healed").exists()
    cell = Cell(
        target=Target("tiny", "package:tiny/tiny.gguf"),
        drafter=NoDrafter(name=f"none-{label}"),
        verify=Extend(),
        engine=TinyEngine(label, breaks if broken else "", gate),
        workload=Jsonl(__file__),
        sampling=Sampling(8),
        parallelism=Parallelism(),
        prompts_digest="tiny",
    )
    return Planned(cell, PROMPTS, f"drive.py {text}")


if __name__ == "__main__":
    sys.exit(main())
