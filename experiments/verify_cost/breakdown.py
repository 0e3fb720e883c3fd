"""Where a verify step's time goes, by both methods and from one run, on any number of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

from torch.profiler import ProfilerActivity, profile

from experiments.verify_cost.breakdown_shown import plot, table
from experiments.verify_cost.target import CONTEXT, chain_step, times
from verify.base import BuildsStep, VerifyStep
from verify.breakdown import Breakdown, Floor, Kernel, by_trace

TRACED_STEPS = 6
EAGER = "extend"  # what the names of eager cells begin with


class Cell(NamedTuple):
    """One cell's step.

    Attributes:
        ablated: Its parts by leaving communication out.
        by_trace: Its parts by its trace; None where that lost a step's end.
        traced_ms: How long a step took while it was traced.
        kernels: The longest of its kernels, by class.
    """

    ablated: Breakdown
    by_trace: Breakdown | None
    traced_ms: float
    kernels: list[Any]


def by_ablation(
    total_ms: float, silent_ms: float, silent_captured_ms: float, floor: Floor
) -> Breakdown:
    """Return the parts from steps that leave something out.

    Args:
        total_ms: The step.
        silent_ms: The same step without communication, but with what the host does for it.
        silent_captured_ms: The same without communication and captured: nothing to launch.
        floor: The all-reduces alone. Without any there is nobody to wait for, and the step without
            communication is the step.
    """
    if not floor.calls:
        return Breakdown(silent_captured_ms, 0.0, 0.0, total_ms - silent_captured_ms)
    launch = max(0.0, silent_ms - silent_captured_ms)
    wait = total_ms - silent_ms - floor.wire_ms
    # A step that waits for its host hides communication in the gaps between launches.
    return Breakdown(silent_captured_ms, floor.wire_ms, max(0.0, wait), launch + min(0.0, wait))


def classes(kernels: Sequence[Kernel], num_steps: int) -> dict[str, tuple[float, float]]:
    """Return calls and own microseconds of each kernel name in a step, the costliest first."""
    found: dict[str, tuple[float, float]] = {}
    done = 0.0
    for kernel in sorted(kernels, key=lambda kernel: (kernel.begin, kernel.end)):
        calls, spent = found.get(kernel.name, (0.0, 0.0))
        own = max(0.0, kernel.end - max(kernel.begin, done))
        found[kernel.name] = (calls + 1 / num_steps, spent + own / num_steps)
        done = max(done, kernel.end)
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


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
        silent_ms[captured] = _device_ms(step, width)
        step.close()
    found: dict[str, Cell] = {}
    (out / "traces").mkdir(parents=True, exist_ok=True)
    for name, floor in floors.items():
        step = build(cells[name])
        total = _device_ms(step, width)
        events = traced(step, width, out / "traces" / f"{_file_name(name)}_{width}.json")
        step.close()
        own = silent_ms[not name.startswith(EAGER)]
        found[name] = _cell(by_ablation(total, own, silent_ms[True], floor), events, total, floor)
    print(table({name: cell[:2] for name, cell in found.items()}), flush=True)
    plot({name: cell.ablated for name, cell in found.items()}, out / f"breakdown_{width}.png")
    return {
        "silent_ms": {str(key): value for key, value in silent_ms.items()},
        "cells": {name: [repr(part) for part in cell[:2]] for name, cell in found.items()},
        "traced_ms": {name: cell.traced_ms for name, cell in found.items() if cell.by_trace},
        "kernels": {name: cell.kernels for name, cell in found.items()},
    }


def _cell(ablated: Breakdown, events: list[Kernel], total: float, floor: Floor) -> Cell:
    """Add what a cell's trace says, where it holds whole steps, to its ablation."""
    kernels = list(classes(events, TRACED_STEPS).items())[:12]
    if len(events) % TRACED_STEPS:
        return Cell(ablated, None, nan, kernels)
    parts = by_trace(events, TRACED_STEPS, floor)
    return Cell(ablated, parts.unslowed(total), parts.total, kernels)


def _device_ms(step: VerifyStep, width: int) -> float:
    """Return the GPU's time for a step."""
    return times(step, chain_step(width, CONTEXT))["device_ms"]


def _file_name(cell: str) -> str:
    """Return a cell's name as a file can have it."""
    return cell.replace(", ", "_").replace(" + ", "_").replace("-", "_")
