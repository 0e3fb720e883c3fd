"""When a gate stops, and as what: one rule for a gate and for thousands of simulated ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.gate.decision.promise import Plan
from pipeline.gate.decision.signed_rank import Floats, Ints, block_sums


def first_proofs(values: Floats, plan: Plan) -> tuple[Ints, Ints]:
    """Return the looks, from 1, at which each metric is first proven slow, and proven not slow.

    Args:
        values: [..., pairs] log ratios; a multiple of the block.
        plan: What was promised.

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
    """Return the look at which each of many gates stops, and whether it stops as a regression.

    Args:
        values: [gates, metrics, pairs] log ratios.
        plan: What was promised.

    Returns:
        [gates] looks from 1, one past the plan's last for undecided; [gates] regressions.
    """
    slow, fast = first_proofs(values, plan)
    never = plan.blocks + 1
    alarm = np.where(slow <= fast, slow, never).min(axis=-1)  # at one look, proof of harm wins
    passed = np.where(slow <= fast, never, fast).max(axis=-1)
    return np.minimum(alarm, passed), (alarm <= passed) & (alarm < never)
