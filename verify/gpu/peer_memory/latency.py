"""What an all-reduce costs at a message size: the library's and ours, eager and captured.

Every rank must make the same calls in the same order.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from verify.gpu.peer_memory.allreduce import PeerAllReduce

AddNorm = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
_CALLS = 64  # in one measurement; even, since slots take turns
_REPEATS = 12
_WARM_UPS = 3
_EPS = 1e-5


class Latency(NamedTuple):
    """Time of one call, median over repetitions, in microseconds."""

    eager_us: float
    captured_us: float


def torch_add_rms_norm(
    delta: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return the norm of `residual + delta`, [W, H], and that sum, by torch's own kernels."""
    total = residual + delta
    return functional.rms_norm(total, (total.shape[-1],), weight, eps), total


def latencies(
    peers: PeerAllReduce,
    group: dist.ProcessGroup,
    device: torch.device,
    size: tuple[int, int],
    add_rms_norm: AddNorm = torch_add_rms_norm,
) -> dict[str, Latency]:
    """Return the latency of each way to sum a message, [W, H] bf16, and to end a block with it."""
    rows, hidden = size
    message, residual = (
        torch.randn(rows, hidden, device=device, dtype=torch.bfloat16) for _ in range(2)
    )
    weight = torch.ones(hidden, device=device, dtype=torch.bfloat16)

    def library() -> Tensor:
        dist.all_reduce(message, group=group)
        return message

    def then_norm(sums: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: add_rms_norm(sums(), residual, weight, _EPS)

    ways: dict[str, Callable[[], object]] = {
        "norm alone": then_norm(lambda: message),
        "nccl": library,
        "nccl + norm": then_norm(library),
    }
    if peers.fits(message):
        ways |= {
            "one-shot": lambda: peers.one_shot(message),
            "two-shot": lambda: peers.two_shot(message),
            "one-shot + norm": then_norm(lambda: peers.one_shot(message)),
            "fused": lambda: peers.fused(message, residual, weight, _EPS),
        }
    with torch.inference_mode():
        return {name: latency(run, message) for name, run in ways.items()}


def latency(run: Callable[[], object], message: Tensor) -> Latency:
    """Time a chain of calls both ways; the message is made small again, or sums overflow.

    Args:
        run: One call, on this rank as on all others.
        message: [W, H] bf16, what it sums.
    """

    def chain() -> None:
        for _ in range(_CALLS):
            run()

    message.normal_()
    eager = _median_us(chain)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        chain()
    message.normal_()
    captured = _median_us(graph.replay)
    graph.reset()
    return Latency(eager, captured)


def _median_us(chain: Callable[[], None]) -> float:
    """Return the time of one call of a chain, between device events."""
    times = []
    for number in range(_WARM_UPS + _REPEATS):
        began, ended = (
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2)
        )
        began.record()
        chain()
        ended.record()
        ended.synchronize()
        if number >= _WARM_UPS:
            times.append(float(began.elapsed_time(ended)) * 1e3 / _CALLS)
    return statistics.median(times)
