"""What the end of a block costs on a CPU, by how the ranks sum: the whole join and nothing else.

Every rank must make the same calls in the same order.
"""

from __future__ import annotations

import torch

from verify.base import Plan

_CALLS = 64  # in one measurement
_REPEATS = 5


def join_times_us(
    plan: Plan, size: tuple[int, int], calls: int = _CALLS, repeats: int = _REPEATS
) -> dict[str, float]:
    """Return microseconds of one sum + residual add + norm of [W, H], for each way to sum.

    Ways take turns, so that a slow spell of the machine hits all of them; the fastest turn counts,
    since whatever else runs only ever slows one.
    """
    delta, residual = torch.ones(size), torch.zeros(size)
    weight = torch.ones(size[1])
    plans = {way: plan.summing(way) for way in plan.ways}
    times: dict[str, list[float]] = {way: [] for way in plans}
    for _ in range(repeats):
        for way, each in plans.items():
            seconds = each.join(delta, residual, weight, calls)[2]
            times[way].append(seconds / calls * 1e6)
    return {way: min(found) for way, found in times.items()}
