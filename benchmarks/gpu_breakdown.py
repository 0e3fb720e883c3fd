"""Where a verify step's time goes, by both methods and from one run, on any number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_target import CONTEXT, chain_step, times
from verify.base import BuildsStep, VerifyStep
from verify.breakdown import Breakdown, Floor, Kernel, by_ablation, by_trace, classes, plot, table

TRACED_STEPS = 6
EAGER = "extend"  # what the names of eager cells begin with


def traced(step: VerifyStep, width: int, chrome: Path) -> list[Kernel]:
    """Return what ran on this rank's GPU during a few steps; keep the trace."""
    inputs = chain_step(width, CONTEXT)
    step(inputs)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        for _ in range(TRACED_STEPS):
            step(inputs)
    found.export_chrome_trace(str(chrome))
    return [
        Kernel(event.name, event.time_range.start, event.time_range.end)
        for event in found.events()
        if str(event.device_type).endswith("CUDA")
    ]


def broken_down(
    build: Callable[[BuildsStep], VerifyStep],
    cells: Mapping[str, BuildsStep],
    silent: Mapping[bool, BuildsStep],
    floors: Mapping[str, Floor],
    width: int,
    out: Path,
) -> dict[str, Any]:
    """Return both breakdowns of every cell, and the kernels of each; draw the first.

    The trace's is without the profiler's own time; `traced_ms` says how long a traced step took.

    Args:
        build: Makes a backend's step.
        cells: Backends by name.
        silent: The step without communication, captured or not.
        floors: What each cell's all-reduces cost when nobody is late.
        width: Rows of the step.
        out: Folder for traces and the plot.
    """
    silent_ms = {}
    for captured, backend in silent.items():
        step = build(backend)
        silent_ms[captured] = times(step, chain_step(width, CONTEXT))["device_ms"]
        step.close()
    found: dict[str, tuple[Breakdown, Breakdown | None]] = {}
    kernels: dict[str, Any] = {}
    traced_ms: dict[str, float] = {}
    (out / "traces").mkdir(parents=True, exist_ok=True)
    for name, floor in floors.items():
        step = build(cells[name])
        total = times(step, chain_step(width, CONTEXT))["device_ms"]
        events = traced(step, width, out / "traces" / f"{_file_name(name)}_{width}.json")
        step.close()
        own = silent_ms[not name.startswith(EAGER)]
        ablated = by_ablation(total, own, silent_ms[True], floor)
        found[name] = (ablated, None)
        if len(events) % TRACED_STEPS == 0:
            parts = by_trace(events, TRACED_STEPS, floor)
            traced_ms[name] = parts.total
            found[name] = (ablated, parts.unslowed(total))
        kernels[name] = list(classes(events, TRACED_STEPS).items())[:12]
    print(table(found), flush=True)
    plot({name: cell[0] for name, cell in found.items()}, out / f"breakdown_{width}.png")
    return {
        "silent_ms": {str(key): value for key, value in silent_ms.items()},
        "cells": {name: [repr(part) for part in cell] for name, cell in found.items()},
        "traced_ms": traced_ms,
        "kernels": kernels,
    }


def _file_name(cell: str) -> str:
    """Return a cell's name as a file can have it."""
    return cell.replace(", ", "_").replace(" + ", "_").replace("-", "_")
