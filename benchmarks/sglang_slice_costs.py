"""What slices of large targets cost by width and backend: tables from their sweeps.

`python -m benchmarks.sglang_slice_costs RUNS …`, where each RUNS is what `benchmarks.together` or
`benchmarks.away` wrote. Times are the medians of all steps. GPU time is what a trace of a few steps
says of their kernels alone: a profiler stretches gaps and waiting, so that both are left out.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from benchmarks.sglang_slices import SLICES
from pipeline.record import CellRecord, Status
from pipeline.roi.scale.target import BF16, INT4_GROUP_32, KIMI_K2_5
from pipeline.store import SweepFolder
from verify.breakdown import Breakdown

RANKS = 2
READ_GB_S = 4162.0  # copy bandwidth of one H200, measured: experiments/verify_cost.md
DEPTH = re.compile(r"(kimi_slice)_(\d+)")


class Cost(NamedTuple):
    """One cell's times in ms.

    Attributes:
        verify_ms: The target's forward, the host's part in it included.
        gpu_ms: Its kernels, all-reduces at their fastest.
        sums: Which all-reduces ran, and how many kernels in all.
    """

    target: str
    backend: str
    width: int
    verify_ms: float
    gpu_ms: float
    sums: str


def cost(record: CellRecord) -> Cost:
    """Return a measured cell's times."""
    steps = [ms for turn in record.repetitions for answer in turn for ms in answer.verify_ms]
    parts = Breakdown(**json.loads(record.settings["breakdown"]))
    return Cost(
        record.params["target"],
        record.params["verify"],
        record.width,
        median(steps),
        parts.compute + parts.wire,
        record.settings["trace"],
    )


def costs(runs: Sequence[Path]) -> list[Cost]:
    """Return the times of every good cell; say which are not good.

    The host's part of a step is most of it here, so that two clocks may differ by that: such a cell
    is named, and kept.
    """
    found = []
    for folder in sorted(path for one in runs for path in one.glob("sweeps/*")):
        for record in SweepFolder(folder).records():
            if record.status is not Status.OK:
                print(f"{record.label} at width {record.width}: {record.status} {record.reason}")
            if record.status is Status.OK or "device timer" in record.reason:
                found.append(cost(record))
    return sorted(found, key=lambda cell: (cell.target, cell.backend, cell.width))


def distinct(target: str, width: int) -> float:
    """Return how many routed experts of a layer the rows of a step visit, if routing is even."""
    config = SLICES[target]
    experts = config.get("num_experts") or config["n_routed_experts"]
    even = replace(KIMI_K2_5, experts=experts, top_k=config["num_experts_per_tok"])
    return even.distinct_experts(width)


def read_us(target: str) -> float:
    """Return the time in which one GPU reads its part of one expert, in bf16."""
    config = SLICES[target]
    weights = 3 * config["hidden_size"] * config["moe_intermediate_size"] / RANKS
    return weights * BF16 / READ_GB_S / 1e3


def expert_lines(cells: Sequence[Cost], target: str) -> Iterator[str]:
    """Yield times by width and backend, and what one more expert costs by a straight line."""
    own = [cell for cell in cells if cell.target == target]
    backends = sorted({cell.backend for cell in own})
    yield "| width | experts a layer | " + " | ".join(f"{b}, ms (GPU)" for b in backends) + " |"
    yield "| --: | --: |" + " --: |" * len(backends)
    for width in sorted({cell.width for cell in own}):
        texts = []
        for backend in backends:
            hit = [c for c in own if (c.backend, c.width) == (backend, width)]
            texts.append(f"{hit[0].verify_ms:.3f} ({hit[0].gpu_ms:.3f})" if hit else "")
        yield f"| {width} | {distinct(target, width):.1f} | " + " | ".join(texts) + " |"
    layers = SLICES[target]["num_hidden_layers"]
    for backend in backends:
        line = [c for c in own if c.backend == backend]
        if len(line) > 2:
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
    """Yield a layer's cost by difference of depths, and what 61 layers come to; ms (GPU ms)."""
    by = {(c.backend, c.width, c.target): c for c in cells if DEPTH.match(c.target)}
    shallow, deep = sorted(name for name in SLICES if DEPTH.match(name))
    depths = [SLICES[name]["num_hidden_layers"] for name in (shallow, deep)]
    heads = ("backend", "width", f"{depths[0]} layer", f"{depths[1]} layers")
    heads += ("a layer with experts", "61 layers", "of it reading experts, bf16 / int4")
    yield f"| {' | '.join(heads)} |"
    yield "| :-- |" + " --: |" * (len(heads) - 1)
    for backend, width in dict.fromkeys((b, w) for b, w, _ in by):
        pair = [by[k] for name in (shallow, deep) if (k := (backend, width, name)) in by]
        if len(pair) < 2:
            continue
        one, two = (np.array([c.verify_ms, c.gpu_ms]) for c in pair)
        layer = (two - one) / (depths[1] - depths[0])
        whole = one + KIMI_K2_5.moe_layers * layer
        reading = KIMI_K2_5.moe_layers * distinct(deep, width) * read_us(deep) / 1e3
        texts = " | ".join(f"{ms:.3f} ({gpu:.3f})" for ms, gpu in (one, two, layer, whole))
        int4 = reading * INT4_GROUP_32 / BF16
        yield f"| {backend} | {width} | {texts} | {reading:.2f} / {int4:.2f} |"


def main(*runs: str) -> None:
    """Print all tables."""
    cells = costs([Path(path) for path in runs])
    for target in sorted({c.target for c in cells if not DEPTH.match(c.target)}):
        print(f"\n{target}", *expert_lines(cells, target), sep="\n")
    if any(DEPTH.match(c.target) for c in cells):
        print("\nKimi-K2.5's slice", *kimi_lines(cells), sep="\n")
    print(
        "\nWhat ran", *dict.fromkeys(f"{c.target}, {c.backend}: {c.sums}" for c in cells), sep="\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
