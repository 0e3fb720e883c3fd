"""Fix error rates and the number of pairs before the first pair, and find where a gate stops."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.gate.decision.signed_rank import Floats, Ints, block_sums, bounds

SMALLEST_BLOCK = 12  # pairs: fewer rank little better than a count of signs


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
