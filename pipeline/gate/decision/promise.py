"""Fix error rates and the number of pairs before the first pair; find what a gate does with them.

`gate_stops` finds where a gate stops. `power_of` simulates the slow-downs that one would have found
in the noise that it saw: the pairs that were seen are their own noise model. With the estimate
taken off, drawn again with replacement and negated by fair coins, they make runs of the same noise,
tails included, and those go through the gate's own rule, slowed by a given share.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.gate.decision.signed_rank import Floats, Ints, block_sums, bounds, middle

SMALLEST_BLOCK = 12  # pairs: fewer rank little better than a count of signs
RUNS = 1000  # simulated: a share of 95 % is known to 0.7 points
MOST_PAIRS = 3000  # about half an hour of pairs: a machine as noisy as that is no gate


@dataclass(frozen=True)
class Promise:
    """The error rates and effect sizes that the gate declares.

    Attributes:
        alpha: Most probability that a gate of two equal versions says regression, over all its
            timed metrics and looks.
        power: Least probability that a metric slower by `min_effect` does not pass.
        min_effect: Slow-down that must not pass, as a share: 0.03 is 3 % more time.
        tolerance: Slow-down that two starts of the same code may show, as a share. In simulation
            (`experiments/gate/false_alarms.py`) it covers starts that differ by a standard
            deviation of up to two thirds of it.
    """

    alpha: float = 0.01
    power: float = 0.95
    min_effect: float = 0.03
    tolerance: float = 0.01

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: One is outside of its range, naming the setting.
        """
        if not 0 < self.alpha <= 0.2:
            raise ValueError(f"gate.alpha={self.alpha}: above 0, and at most 0.2")
        if not 0.5 <= self.power < 1:
            raise ValueError(f"gate.power={self.power}: 0.5 or more, and under 1")
        if not 0 <= self.tolerance < self.min_effect:
            raise ValueError(
                f"gate.tolerance={self.tolerance}: 0 or more, and under"
                f" gate.min_effect={self.min_effect}"
            )


@dataclass(frozen=True)
class Plan:
    """A promise and the most pairs that a gate measures for it.

    Attributes:
        block: Pairs that are ranked together; a look follows each block. A whole number of rounds
            over the prompts (`plan_rounds`).
        blocks: Looks at most.
        metrics: Timed metrics that share the error budget.
        promise: The declared error rates and effect sizes.
    """

    block: int
    blocks: int
    metrics: int
    promise: Promise

    @property
    def pairs(self) -> int:
        """The number of pairs at most."""
        return self.block * self.blocks

    @property
    def slow_bounds(self) -> tuple[int, ...]:
        """The rank sum after each block that proves a slow-down; metrics share `alpha`."""
        return bounds(self.block, self.blocks, self.promise.alpha / self.metrics)

    @property
    def fast_bounds(self) -> tuple[int, ...]:
        """The rank sum of negated log ratios after each block that rules a slow-down out."""
        return bounds(self.block, self.blocks, 1 - self.promise.power)


def plan_rounds(prompts: int, max_rounds: int, metrics: int, promise: Promise) -> Plan:
    """Return the plan of up to `max_rounds` rounds, with a look after every 12 pairs or more.

    Args:
        prompts: Pairs of one round: each prompt is answered by both sides once.
        max_rounds: Rounds that the time allows; those that fill no block are not run.
        metrics: Timed metrics.
        promise: The declared error rates and effect sizes.

    Raises:
        ValueError: Not one block fits into the rounds.
    """
    rounds = math.ceil(SMALLEST_BLOCK / prompts)
    if max_rounds < rounds:
        raise ValueError(
            f"gate.max_rounds={max_rounds}: {prompts} prompts need at least {rounds} rounds for"
            f" one look at {SMALLEST_BLOCK} pairs"
        )
    return Plan(prompts * rounds, max_rounds // rounds, metrics, promise)


def candidate_first(pairs: int, seed: int) -> tuple[bool, ...]:
    """Draw for each pair whether the candidate answers first: a fair coin, independent each time.

    The test is exact because of these coins alone, so alternating is no substitute.
    """
    return tuple(bool(coin) for coin in np.random.default_rng(seed).integers(0, 2, pairs))


def first_proofs(values: Floats, plan: Plan) -> tuple[Ints, Ints]:
    """Find the looks, from 1, at which each metric is first proven slow, and proven not slow.

    Args:
        values: [..., pairs] log ratios; a multiple of the block.
        plan: The plan that was fixed before the first pair.

    Returns:
        Two arrays [...]; a look past the plan's last one means never.
    """
    looks = values.shape[-1] // plan.block
    slow = block_sums(values - math.log1p(plan.promise.tolerance), plan.block)
    fast = block_sums(math.log1p(plan.promise.min_effect) - values, plan.block)
    return (
        _first(slow >= np.array(plan.slow_bounds[:looks]), plan),
        _first(fast >= np.array(plan.fast_bounds[:looks]), plan),
    )


def _first(proven: NDArray[np.bool_], plan: Plan) -> Ints:
    """Return the first look that is true, from 1, or one past the plan's last."""
    before = (~np.logical_or.accumulate(proven, axis=-1)).sum(axis=-1)
    return np.where(proven.any(axis=-1), before + 1, plan.blocks + 1)


def gate_stops(values: Floats, plan: Plan) -> tuple[Ints, NDArray[np.bool_]]:
    """Find the look at which each of many gates stops, and whether it stops as a regression.

    Args:
        values: [gates, metrics, pairs] log ratios.
        plan: The plan that was fixed before the first pair.

    Returns:
        [gates] looks from 1, one past the plan's last for undecided; [gates] regressions.
    """
    slow, fast = first_proofs(values, plan)
    never = plan.blocks + 1
    alarm = np.where(slow <= fast, slow, never).min(axis=-1)  # at one look, proof of harm wins
    passed = np.where(slow <= fast, never, fast).max(axis=-1)
    return np.minimum(alarm, passed), (alarm <= passed) & (alarm < never)


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
