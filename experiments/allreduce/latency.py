"""All-reduce alone on several GPUs: correctness, then latency by message size.

`python -m experiments.allreduce.latency OUT [--check]`. With `--check` a short run, fit for
`compute-sanitizer --tool memcheck --target-processes all`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from experiments.verify_cost.one_gpu import relative_error
from pipeline.engine.torch.gpu import rowwise
from pipeline.engine.torch.kernels import Kernels
from verify.allreduce import WIDTHS, findings, table, topology
from verify.gpu.peer_memory.allreduce import PeerAllReduce
from verify.gpu.peer_memory.latency import Latency, latencies
from verify.ranks import each_rank

HIDDEN = 4096


def check(peers: PeerAllReduce, device: torch.device, rounds: int) -> dict[str, float]:
    """Return the worst relative error of each sum against float64 of all ranks' inputs."""
    rank, world = dist.get_rank(), dist.get_world_size()
    worst = {"one_shot": 0.0, "two_shot": 0.0, "fused_norm": 0.0, "fused_sum": 0.0}
    for number in range(rounds):
        for hidden in (HIDDEN, 576, 7168):
            rows = (1, 4, 8, 16)[number % 4]
            every = [_drawn(rows, hidden, number, r, device) for r in range(world)]
            residual = _drawn(rows, hidden, number, 99, device)
            weight = _drawn(1, hidden, number, 98, device)[0]
            exact = torch.stack([part.double() for part in every]).sum(0)
            norm, total = Kernels().add_rms_norm(exact, residual.double(), weight.double(), 1e-5)
            fused = peers.fused(every[rank], residual, weight, 1e-5)
            outs = {
                "one_shot": (peers.one_shot(every[rank]), exact),
                "two_shot": (peers.two_shot(every[rank]), exact),
                "fused_norm": (fused[0], norm),
                "fused_sum": (fused[1], total),
            }
            for name, (out, truth) in outs.items():
                worst[name] = max(worst[name], relative_error(out, truth))
                _same_everywhere(out, name)
    assert max(worst.values()) < 1e-2, worst
    return worst


def check_nan(peers: PeerAllReduce, device: torch.device) -> None:
    """Assert that a NaN of any bits arrives as a NaN, and does not look like an empty word."""
    message = torch.ones(2, HIDDEN, device=device, dtype=torch.bfloat16)
    message.view(torch.int32)[0, 5] = -1
    out = peers.one_shot(message)
    assert out.isnan().sum() == 2, "two elements of one word were NaN"


def check_captured(peers: PeerAllReduce, device: torch.device) -> None:
    """Assert that replays of a captured chain give the eager result every time."""
    message, residual = (_drawn(4, HIDDEN, 0, r, device) for r in (dist.get_rank(), 99))
    weight = torch.ones(HIDDEN, device=device, dtype=torch.bfloat16)
    expected = peers.fused(*peers.fused(message, residual, weight, 1e-5), weight, 1e-5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        outs = peers.fused(*peers.fused(message, residual, weight, 1e-5), weight, 1e-5)
    for _ in range(50):
        for out in outs:
            out.fill_(float("nan"))
        graph.replay()
        for out, truth in zip(outs, expected, strict=True):
            assert torch.equal(out, truth), "a replay differs: a race"


def _drawn(rows: int, hidden: int, number: int, rank: int, device: torch.device) -> Tensor:
    """Return one rank's message of a round; every rank can draw any other's."""
    generator = torch.Generator(device).manual_seed(1000 * number + rank + hidden)
    return torch.randn(
        rows, hidden, generator=generator, device=device, dtype=torch.float32
    ).bfloat16()


def _same_everywhere(out: Tensor, name: str) -> None:
    """Assert that all ranks hold the same bits: they must go on with the same activations."""
    parts = [torch.empty_like(out) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, out)
    assert all(torch.equal(part, out) for part in parts), f"{name} differs between ranks"


def measure(device: torch.device, out: str, short: bool) -> None:
    """Check and measure as one rank; rank 0 prints and writes."""
    rank = dist.get_rank()
    assert dist.group.WORLD is not None
    peers = PeerAllReduce(dist.group.WORLD, device, max(WIDTHS) * 7168)
    with torch.inference_mode():
        worst = check(peers, device, 2 if short else 12)
        check_nan(peers, device)
        check_captured(peers, device)
    if rank == 0:
        print("check", worst, flush=True)
    if not short:
        rows = []
        for width in WIDTHS:
            size = (width, HIDDEN)
            row = latencies(peers, dist.group.WORLD, device, size)
            own = latencies(peers, dist.group.WORLD, device, size, rowwise.add_rms_norm)
            for way in ("norm alone", "nccl + norm", "one-shot + norm"):
                row[way.replace("norm", "own norm").removesuffix(" alone")] = own[way]
            rows.append(row)
        if rank == 0:
            _write(out, worst, rows)


def _write(out: str, worst: dict[str, float], rows: list[dict[str, Latency]]) -> None:
    """Print the table and what it says; write both as JSON."""
    sizes = [2 * width * HIDDEN for width in WIDTHS]
    print(topology(), table(sizes, rows), *findings(sizes, rows), sep="\n", flush=True)
    found = {"check": worst, "rows": dict(zip(WIDTHS, rows, strict=True))}
    Path(out, "allreduce.json").write_text(json.dumps(found))


def main(out: str, *flags: str) -> None:
    """Start one process a GPU."""
    each_rank(measure, min(8, torch.cuda.device_count()), out, "--check" in flags)


if __name__ == "__main__":
    main(*sys.argv[1:])
