"""What a verify step costs on one GPU: by width, by context, captured and eager, against the floor.

`python -m experiments.verify_cost.one_gpu OUT [--check]`: correctness first, and with `--check`
nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from experiments.verify_cost.breakdown import EAGER, broken_down
from experiments.verify_cost.target import (
    CONTEXT,
    CONTEXTS,
    CUDA,
    chain_step,
    copy_bandwidth,
    target,
    times,
    weight_bytes,
)
from pipeline.engine.torch.kernels import Kernels
from pipeline.engine.torch.llama import Llama
from verify.base import BuildsStep, StepInput, VerifyStep
from verify.breakdown import Floor
from verify.extend import Extend
from verify.gpu.cuda_graph import CudaGraphStep
from verify.graph_captured import GraphCaptured

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
CELLS: dict[str, BuildsStep] = {EAGER: Extend(), "captured": GraphCaptured()}


def check(start: int = 300) -> dict[str, float]:
    """Return relative errors against float64, beside plain torch's own, and how bits behave.

    One layer is within 1e-2. Rounding to bf16 adds up with depth in any implementation, so deeper
    targets are compared with what plain torch's bf16 forward is off by.
    """
    found = {"one_layer": _worst(1, start), "four_layers": _worst(4, start)}
    assert found["one_layer"][0] < 1e-2, found
    assert found["four_layers"][0] < 1.1 * found["four_layers"][1], found
    flat = {name: value[0] for name, value in found.items()}
    flat |= {f"{name}_plain_torch": value[1] for name, value in found.items()}
    return flat | {"rows_differ_by_width": _bits(target(2, 1024), start)}


def _worst(num_layers: int, start: int) -> tuple[float, float]:
    """Return the captured step's worst relative error against float64, and plain torch's."""
    model, exact = target(num_layers, 1024), target(num_layers, 1024, torch.float64)
    plain = target(num_layers, 1024, kernels=Kernels())
    worst = [0.0, 0.0]
    for width in (1, 4, 8, 16):
        step = CudaGraphStep(model, width)
        for seed in range(3):
            _fill(model, start, seed)
            for other in (exact, plain):
                for mine, its in zip(model.caches, other.caches, strict=True):
                    its.copy_(mine)
            inputs = chain_step(width, start, seed)
            truth = exact.forward(inputs).logits
            step._logits.fill_(float("nan"))
            first = step(inputs).logits.clone()
            worst[0] = max(worst[0], relative_error(first, truth))
            worst[1] = max(worst[1], relative_error(plain.forward(inputs).logits, truth))
            for _ in range(10):
                assert torch.equal(step(inputs).logits, first), "the error moves: a race"
        step.close()
    return worst[0], worst[1]


def _bits(model: Llama, start: int) -> float:
    """Return the share of rows whose logits differ in any bit between width 16 and width 1."""
    wide, narrow = CudaGraphStep(model, 16), CudaGraphStep(model, 1)
    inputs = chain_step(16, start)
    together = wide(inputs).logits.clone()
    differing = 0
    for row in range(16):
        one = StepInput(
            inputs.tokens[row : row + 1],
            inputs.positions[row : row + 1],
            torch.ones(1, 1, dtype=torch.bool),
            start + row,
        )
        differing += not torch.equal(narrow(one).logits[0], together[row])
    wide.close()
    narrow.close()
    return differing / 16


def _fill(model: Llama, num_slots: int, seed: int) -> None:
    """Put random keys and values into the slots in use and poison the rest."""
    torch.manual_seed(seed)
    for cache in model.caches:
        cache[:, :, :num_slots].normal_()
        cache[:, :, num_slots:].fill_(float("nan"))


def relative_error(out: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the relative error in norm; NaN never passes."""
    return float((out.double() - truth.double()).norm() / truth.double().norm())


def width_curve(model: Llama) -> list[dict[str, Any]]:
    """Return captured and eager times by width at one context."""
    rows = []
    for width in WIDTHS:
        step = CudaGraphStep(model, width)
        inputs = chain_step(width, CONTEXT)
        rows.append({"width": width, "captured": times(step, inputs)})
        if width in (1, 4, 8):
            rows[-1]["eager"] = times(model.forward, inputs, 20)
        step.close()
    return rows


def context_curve(model: Llama) -> list[dict[str, Any]]:
    """Return captured times by context at three widths, and eager ones at some."""
    rows: list[dict[str, Any]] = []
    for width in (1, 4, 8):
        step = CudaGraphStep(model, width)
        for context in CONTEXTS:
            inputs = chain_step(width, context)
            rows.append({"width": width, "context": context, **times(step, inputs)})
            if context in (256, 2048, 32768):
                rows[-1]["eager"] = times(model.forward, inputs, 20)
        step.close()
    return rows


def breakdown(model: Llama, out: Path, width: int) -> dict[str, Any]:
    """Return where the time of both cells goes; one GPU has nothing to sum or to wait for."""
    silent = {False: CELLS[EAGER], True: CELLS["captured"]}
    floors = {name: Floor(0, 0.0) for name in CELLS}

    def build(backend: BuildsStep) -> VerifyStep:
        return backend.build(model, width, 1)

    return broken_down(build, CELLS, silent, floors, width, out / "one_gpu")


def main(out: str, *flags: str) -> None:
    """Check, measure, print and write JSON."""
    print(torch.cuda.get_device_name(), torch.__version__)
    found: dict[str, Any] = {"check": check()}
    print("check", found["check"])
    if "--check" not in flags:
        torch.cuda.empty_cache()
        bandwidth = copy_bandwidth()
        torch.cuda.empty_cache()
        model = target(32, 33000)
        _fill(model, 33000, 0)
        floor = weight_bytes(model.shape) / bandwidth * 1e3
        found |= {"copy_gb_s": bandwidth / 1e9, "floor_ms": floor}
        print(f"copy {bandwidth / 1e9:.0f} GB/s, floor {floor:.3f} ms")
        found["widths"] = width_curve(model)
        one = found["widths"][0]["captured"]["device_ms"]
        for row in found["widths"]:
            ms = row["captured"]["device_ms"]
            print(row["width"], f"{ms:.3f} ms, floor share {floor / ms:.1%}, x{ms / one:.3f}", row)
        found["contexts"] = context_curve(model)
        for row in found["contexts"]:
            print(row)
        found["breakdown"] = {width: breakdown(model, Path(out), width) for width in (1, 4, 8)}
    Path(out).mkdir(parents=True, exist_ok=True)
    Path(out, "gpu_verify.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    assert CUDA.type == "cuda"
    with torch.inference_mode():
        main(*sys.argv[1:])
