"""What a verify step costs on several GPUs, by who sums and how, and where its time goes.

`python -m experiments.verify_cost.ranks OUT check`, `... OUT times`, `... OUT contexts`: a process
each, since torch's peer memory keeps the first group's store. Times need what
`experiments.allreduce.latency OUT` wrote.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from experiments.verify_cost.breakdown import EAGER, broken_down
from experiments.verify_cost.cells import CELLS, Silent
from experiments.verify_cost.one_gpu import relative_error
from experiments.verify_cost.target import CONTEXT, CONTEXTS, SHAPE_8B, chain_step, target, times
from pipeline.engine.torch.parallel.leader import ParallelLlama
from pipeline.engine.torch.prefill import CHUNK
from pipeline.engine.torch.weights import DenseLoader
from pipeline.target.random_checkpoint import RandomCheckpoint
from verify.base import BuildsStep, VerifyStep
from verify.breakdown import Floor

WIDTHS = (1, 2, 4, 8, 16)


def parallel(num_layers: int, world: int, capacity: int = 1024) -> ParallelLlama:
    """Return the 8B-shaped target over `world` GPUs."""
    shape = replace(SHAPE_8B, num_layers=num_layers)
    loader = DenseLoader(RandomCheckpoint(shape, torch.bfloat16), capacity, torch.bfloat16)
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


def by_context(model: ParallelLlama) -> list[dict[str, Any]]:
    """Return times of the backends by context, over tokens that were really read."""
    for start in range(0, CONTEXTS[-1], CHUNK):
        model.forward(chain_step(CHUNK, start))
    rows = []
    for name in ("extend, nccl", "captured, nccl", "captured, fused"):
        repeats = 12 if name.startswith(EAGER) else 40
        for width in (1, 4, 8):
            step = model.build(CELLS[name], width, 1)
            for context in CONTEXTS:
                found = times(step, chain_step(width, context), repeats)
                rows.append({"cell": name, "width": width, "context": context, **found})
                print(rows[-1], flush=True)
            step.close()
    return rows


def breakdown(model: ParallelLlama, out: Path, width: int) -> dict[str, Any]:
    """Return both breakdowns of every cell, and the kernels of each."""

    def build(backend: BuildsStep) -> VerifyStep:
        return model.build(backend, width, 1)

    silent = {captured: Silent(captured) for captured in (False, True)}
    return broken_down(build, CELLS, silent, floors(out, width), width, out)


def main(out: str, action: str) -> None:
    """Check, or measure; print and write JSON after each part."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    world = min(8, torch.cuda.device_count())
    if action == "check":
        found = check(world)
        print("check", found, flush=True)
        _write(folder, action, {"check": found})
        return
    capacity = CONTEXTS[-1] + 256 if action == "contexts" else 1024
    model = parallel(SHAPE_8B.num_layers, world, capacity)
    model.forward(chain_step(CONTEXT, 0))
    if action == "contexts":
        _write(folder, action, {"steps": by_context(model)})
    else:
        times_found: dict[str, Any] = {"steps": measured(model)}
        _write(folder, action, times_found)
        times_found["breakdown"] = {width: breakdown(model, folder, width) for width in (1, 4, 8)}
        _write(folder, action, times_found)
    model.close()


def _write(folder: Path, action: str, found: dict[str, Any]) -> None:
    """Write what was found by an action."""
    (folder / f"gpu_parallel_{action}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    with torch.inference_mode():
        main(*sys.argv[1:])
    assert not dist.is_initialized()
