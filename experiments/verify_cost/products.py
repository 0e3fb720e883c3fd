"""Which cut of the skinny product reads weights fastest, beside cuBLAS: GB/s by shape and width.

`python -m experiments.verify_cost.products OUT [WIDTHS]`: each figure is one graph of products over
weights that together exceed the L2 cache many times.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.nn import functional

from experiments.verify_cost.target import CUDA, copy_bandwidth, graph_ms
from pipeline.engine.torch.gpu.product import Cut, skinny_product

SHAPES = {
    "qkv": (6144, 4096),
    "output": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
    "head": (128256, 4096),
}
CUTS = [
    Cut(1, 8, 2, 4),
    Cut(1, 8, 4, 3),
    Cut(1, 8, 4, 2),
    Cut(1, 8, 6, 2),
    Cut(1, 8, 6, 2, ahead=1),
    Cut(2, 8, 2, 2),
    Cut(2, 8, 4, 1),
]


def speed(num_out: int, depth: int, width: int, cut: Cut | None) -> float:
    """Return GB/s of a sequence of products; None is cuBLAS."""
    size = num_out * depth * 2
    weights = [
        torch.randn(num_out, depth, device=CUDA, dtype=torch.bfloat16)
        for _ in range(max(2, min(16, 2**30 // size)))
    ]
    x = torch.randn(width, depth, device=CUDA, dtype=torch.bfloat16)

    def run() -> None:
        for weight in weights:
            if cut is None:
                functional.linear(x, weight)
            else:
                skinny_product(x, weight, cut=cut)

    return len(weights) * size / graph_ms(run) / 1e6


def main(out: str, widths: list[int]) -> None:
    """Print a table and write it as JSON."""
    torch.manual_seed(0)
    floor = copy_bandwidth() / 1e9
    print(f"{torch.cuda.get_device_name()}: copy {floor:.0f} GB/s")
    rows = []
    for name, (num_out, depth) in SHAPES.items():
        for width in widths:
            found = {"cuBLAS": speed(num_out, depth, width, None)}
            for cut in CUTS:
                found[str(tuple(cut))] = speed(num_out, depth, width, cut)
            best = sorted(found.items(), key=lambda item: -item[1])
            rows.append({"shape": name, "width": width, "gb_s": found})
            print(
                name, width, f"cuBLAS {found['cuBLAS']:.0f}", [(k, round(v)) for k, v in best[:4]]
            )
    Path(out, "gpu_products.json").write_text(json.dumps({"copy_gb_s": floor, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1], [int(width) for width in sys.argv[2:]] or [1, 8])
