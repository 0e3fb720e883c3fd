"""Simulate the slow-downs that a gate would have found in the noise that it saw.

The pairs that were seen are their own noise model: with the estimate taken off, drawn again with
replacement and negated by fair coins, they make runs of the same noise, tails included. Those
go through the gate's own rule (`promise.gate_stops`), slowed by a given share.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.gate.decision.promise import Plan, gate_stops
from pipeline.gate.decision.signed_rank import Floats, middle

RUNS = 1000  # a share of 95 % is known to 0.7 points
MOST_PAIRS = 3000  # about half an hour of pairs: a machine as noisy as that is no gate


@dataclass(frozen=True)
class Power:
    """The power that one metric had in its noise.

    Attributes:
        found: Share of runs with this noise and plan in which a slow-down of `min_effect` would
            have been called a regression.
        pairs_needed: Pairs after which 95 % of runs (`promise.power`) find `min_effect`, and as
            many decide, either way, on the slow-down that was estimated. They are those of a new
            run: the pairs seen have spent their error budget. Infinite if 3,000 are too few.
    """

    found: float
    pairs_needed: float


def power_of(values: Sequence[float], plan: Plan) -> Power:
    """Estimate the power that one metric had from its pairs.

    Args:
        values: Log ratios of the pairs of finished blocks, one block at least.
        plan: The gate's plan; all of its pairs count, whether it stopped early or not.

    Raises:
        ValueError: Fewer pairs than a block.
    """
    seen = np.array(values[: len(values) // plan.block * plan.block], dtype=np.float64)
    if not len(seen):
        raise ValueError(f"gate: {len(values)} pairs say nothing of power; {plan.block} at least")
    estimate = middle(seen, plan.block)
    noise = (seen - estimate) * math.sqrt(len(seen) / (len(seen) - 1))
    smallest = math.log1p(plan.promise.min_effect)
    share, _ = _shares(noise, smallest, plan)
    most = MOST_PAIRS // plan.block

    def enough(blocks: int) -> bool:
        longer = replace(plan, blocks=blocks)
        finds, _ = _shares(noise, smallest, longer)
        return finds >= plan.promise.power <= _shares(noise, estimate, longer)[1]

    high = next((n for n in (2**i for i in range(most.bit_length())) if enough(n)), None)
    if high is None:
        return Power(share, math.inf)
    needed = high // 2 + 1 + bisect_left(range(high // 2 + 1, high), True, key=enough)
    return Power(share, needed * plan.block)


def _shares(noise: Floats, slow_down: float, plan: Plan) -> tuple[float, float]:
    """Simulate runs; return the shares that find a regression, and that decide at all."""
    generator = np.random.default_rng(0)
    drawn = generator.choice(noise, (RUNS, 1, plan.pairs))
    signs = generator.choice([-1.0, 1.0], drawn.shape)
    stops, regression = gate_stops(slow_down + signs * drawn, plan)
    return float(regression.mean()), float((stops <= plan.blocks).mean())
