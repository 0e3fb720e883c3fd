"""What mixtures of experts and slices of large ones cost by width and backend, from their sweeps.

`python -m experiments.kimi_slice.slice_costs RUNS …`, where each RUNS is the runs folder of such a
sweep. Times are the medians of all steps. GPU time is what a trace of a few steps says of their
kernels alone: a profiler stretches gaps and waiting, so that both are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import hypot
from pathlib import Path

import numpy as np

from experiments.kimi_slice.slices import SLICES
from experiments.sglang_grid.mixture_target import CONFIG
from experiments.sglang_grid.step_costs import Cost, costs
from pipeline.roi.scale.forward_cost import BF16, INT4_GROUP_32, KIMI_K2_5

RANKS = 2
READ_GB_S = 4162.0  # copy bandwidth of one H200, measured: experiments/verify_cost/README.md
SHAPES = {"qwen3_moe": CONFIG, **SLICES}
DEPTH = re.compile(r"(kimi_slice)_(\d+)")


def distinct(target: str, width: int) -> float:
    """Return how many routed experts of a layer the rows of a step visit, if routing is even."""
    config = SHAPES[target]
    experts = config.get("num_experts") or config["n_routed_experts"]
    even = replace(KIMI_K2_5, experts=experts, top_k=config["num_experts_per_tok"])
    return float(even.distinct_experts(width))


def read_us(target: str) -> float:
    """Return the time in which one GPU reads its part of one expert, in bf16."""
    config = SHAPES[target]
    weights = 3 * config["hidden_size"] * config["moe_intermediate_size"] / RANKS
    return float(weights * BF16 / READ_GB_S / 1e3)


def both(cell: Cost | None) -> str:
    """Return a cell's two times as a table shows them; nothing for a cell that is missing."""
    return f"{cell.verify_ms:.3f} ({cell.gpu_ms:.3f})" if cell else ""


def expert_lines(cells: Sequence[Cost], target: str) -> Iterator[str]:
    """Yield times by width and backend, and what one more expert costs by a straight line."""
    own = [cell for cell in cells if cell.target == target]
    backends = sorted({cell.backend for cell in own})
    heads = " | ".join(f"{backend}, ms (GPU)" for backend in backends)
    yield f"| width | drafter | experts a layer | {heads} |"
    yield "| --: | :-- |" + " --: |" * (len(backends) + 1)
    for width, drafter in sorted({(cell.width, cell.drafter) for cell in own}):
        by = {c.backend: c for c in own if (c.width, c.drafter) == (width, drafter)}
        texts = (both(by.get(backend)) for backend in backends)
        yield f"| {width} | {drafter} | {distinct(target, width):.1f} | {' | '.join(texts)} |"
    layers = SHAPES[target]["num_hidden_layers"]
    for backend in backends:
        line = [c for c in own if c.backend == backend]
        if len({cell.width for cell in line}) > 2:
            yield f"{backend}: {fitted(line, target, layers)}"


def fitted(line: Sequence[Cost], target: str, layers: int) -> str:
    """Say what an expert costs: a step is a constant and a share for each expert visited."""
    visits = np.array([layers * distinct(target, cell.width) for cell in line])
    said = []
    for name in ("verify_ms", "gpu_ms"):
        times = np.array([getattr(cell, name) for cell in line])
        slope, fixed = np.polyfit(visits, times, 1)
        off = np.abs(slope * visits + fixed - times).max()
        said.append(
            f"{name} = {fixed:.3f} ms + {1e3 * slope:.2f} us an expert and layer, off by"
            f" {off:.3f} ms at most"
        )
    return f"{'; '.join(said)}; reading an expert takes {read_us(target):.2f} us"


def kimi_lines(cells: Sequence[Cost]) -> Iterator[str]:
    """Yield a layer's cost by difference of depths, and what 61 layers come to; ms (GPU ms).

    What repetitions differ by is multiplied as a layer is: its standard error is behind the 61.
    """
    by = {(c.backend, c.width, c.target): c for c in cells if DEPTH.match(c.target)}
    shallow, deep = sorted(name for name in SLICES if DEPTH.match(name))
    depths = [SLICES[name]["num_hidden_layers"] for name in (shallow, deep)]
    heads = ["backend", "width", f"{depths[0]} layer", f"{depths[1]} layers"]
    heads += ["a layer with experts", "61 layers", "of it reading experts, bf16 / int4"]
    yield f"| {' | '.join(heads)} |"
    yield "| :-- |" + " --: |" * (len(heads) - 1)
    many = KIMI_K2_5.moe_layers / (depths[1] - depths[0])
    for backend, width in dict.fromkeys((b, w) for b, w, _ in by):
        pair = [by.get((backend, width, name)) for name in (shallow, deep)]
        texts = [both(cell) for cell in pair] + ["", ""]
        if (low := pair[0]) and (high := pair[1]):
            one, two = (np.array([c.verify_ms, c.gpu_ms]) for c in (low, high))
            layer = (two - one) / (depths[1] - depths[0])
            ms, gpu = one + many * (two - one)
            error = hypot(many * high.error_ms, (1 - many) * low.error_ms)
            texts[2:] = f"{layer[0]:.3f} ({layer[1]:.3f})", f"{ms:.2f} ± {error:.2f} ({gpu:.2f})"
        reading = KIMI_K2_5.moe_layers * distinct(deep, width) * read_us(deep) / 1e3
        int4 = reading * INT4_GROUP_32 / BF16
        yield f"| {backend} | {width} | {' | '.join(texts)} | {reading:.2f} / {int4:.2f} |"


def main(*runs: str) -> None:
    """Print all tables."""
    cells = costs([Path(path) for path in runs])
    for target in sorted({c.target for c in cells if not DEPTH.match(c.target)} & SHAPES.keys()):
        print(f"\n{target}", *expert_lines(cells, target), sep="\n")
    if any(DEPTH.match(c.target) for c in cells):
        print("\nKimi-K2.5's slice", *kimi_lines(cells), sep="\n")
    print(
        "\nWhat ran", *dict.fromkeys(f"{c.target}, {c.backend}: {c.sums}" for c in cells), sep="\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
