"""What a verify step costs on several GPUs, by who sums and how, and where its time goes.

`python -m benchmarks.gpu_parallel OUT check`, then `... OUT times`: two processes, since torch's
peer memory keeps the first group's store. Times need what `benchmarks.gpu_allreduce OUT` wrote.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_cells import CELLS, Silent
from benchmarks.gpu_target import SHAPE_8B, chain_step, target
from benchmarks.gpu_verify import relative_error, times
from pipeline.engine.torch.loader import DenseLoader
from pipeline.engine.torch.parallel import ParallelLlama
from pipeline.engine.torch.random_checkpoint import RandomCheckpoint
from verify.base import VerifyStep
from verify.breakdown import Breakdown, Floor, Kernel, by_ablation, by_trace, classes, plot, table

CONTEXT = 512
WIDTHS = (1, 2, 4, 8, 16)
TRACED_STEPS = 6


def parallel(num_layers: int, world: int) -> ParallelLlama:
    """Return the 8B-shaped target over `world` GPUs."""
    shape = replace(SHAPE_8B, num_layers=num_layers)
    loader = DenseLoader(RandomCheckpoint(shape, torch.bfloat16), 1024, torch.bfloat16)
    return ParallelLlama(loader, shape, world, "cuda")


def check(world: int) -> dict[str, float]:
    """Return each cell's worst relative error against float64 on one GPU; one layer."""
    exact, model = target(1, 1024, torch.float64), parallel(1, world)
    found: dict[str, float] = {}
    for name, backend in CELLS.items():
        step = model.build(backend, 4, 1)
        errors = []
        for seed in range(4):
            prompt, inputs = chain_step(300, 0, seed), chain_step(4, 300, seed + 100)
            for one in (exact, model):
                one.forward(prompt)
            truth = exact.forward(inputs).logits
            first = step(inputs).logits.clone()
            errors.append(relative_error(first, truth))
            for _ in range(10):
                assert torch.equal(step(inputs).logits, first), f"{name}: the error moves: a race"
        proof = step.proof
        assert proof.allreduces_per_step == 2, proof
        step.close()
        found[name] = max(errors)
        assert found[name] < 1e-2, found
    model.close()
    return found


def measured(model: ParallelLlama) -> list[dict[str, Any]]:
    """Return device and wall times of every cell and width."""
    rows = []
    for width in WIDTHS:
        for name, backend in CELLS.items():
            if name.startswith("extend") and width not in (1, 4, 8):
                continue
            step = model.build(backend, width, 1)
            row = {"cell": name, "width": width, **times(step, chain_step(width, CONTEXT))}
            row["allreduces"] = step.proof.allreduces_per_step
            row["fused"] = step.proof.fused_allreduces_per_step
            step.close()
            rows.append(row)
            print(row, flush=True)
    return rows


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


def floors(out: Path, width: int) -> dict[str, Floor]:
    """Return every cell's floor from the table of all-reduces alone that was written before."""
    row = json.loads(Path(out, "allreduce.json").read_text())["rows"][str(width)]
    norm, calls = row["own norm"][1], 2 * SHAPE_8B.num_layers
    library = Floor(calls, row["nccl + own norm"][1] - norm)
    return {
        "extend, nccl": library,
        "captured, nccl": library,
        "captured, one-shot + norm": Floor(calls, row["one-shot + own norm"][1] - norm),
        "captured, fused": Floor(calls, row["fused"][1], norm),
    }


def broken_down(model: ParallelLlama, out: Path, width: int) -> dict[str, Any]:
    """Return both breakdowns of every cell, and the kernels of each."""
    silent = {}
    for captured in (False, True):
        step = model.build(Silent(captured), width, 1)
        silent[captured] = times(step, chain_step(width, CONTEXT))["device_ms"]
        step.close()
    cells: dict[str, tuple[Breakdown, Breakdown | None]] = {}
    kernels: dict[str, Any] = {}
    for name, floor in floors(out, width).items():
        step = model.build(CELLS[name], width, 1)
        total = times(step, chain_step(width, CONTEXT))["device_ms"]
        label = name.replace(", ", "_").replace(" + ", "_").replace("-", "_")
        events = traced(step, width, out / "traces" / f"{label}_{width}.json")
        step.close()
        own = silent[not name.startswith("extend")]
        cells[name] = (by_ablation(total, own, silent[True], floor), None)
        kernels[name] = list(classes(events, TRACED_STEPS).items())[:12]
        if len(events) % TRACED_STEPS == 0:
            cells[name] = (cells[name][0], by_trace(events, TRACED_STEPS, floor))
    print(table(cells), flush=True)
    plot({name: cell[0] for name, cell in cells.items()}, out / f"breakdown_{width}.png")
    return {
        "silent_ms": {str(key): value for key, value in silent.items()},
        "cells": {name: [repr(part) for part in cell] for name, cell in cells.items()},
        "kernels": kernels,
    }


def main(out: str, action: str) -> None:
    """Check, or measure; print and write JSON."""
    folder = Path(out)
    (folder / "traces").mkdir(parents=True, exist_ok=True)
    world = min(8, torch.cuda.device_count())
    found: dict[str, Any] = {}
    if action == "check":
        found["check"] = check(world)
        print("check", found["check"], flush=True)
    else:
        model = parallel(SHAPE_8B.num_layers, world)
        model.forward(chain_step(CONTEXT, 0))
        found["steps"] = measured(model)
        found["breakdown"] = {width: broken_down(model, folder, width) for width in (1, 4, 8)}
        model.close()
    (folder / f"gpu_parallel_{action}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    with torch.inference_mode():
        main(*sys.argv[1:])
    assert not dist.is_initialized()
