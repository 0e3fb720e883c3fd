"""Decide on timed metrics side by side: regression, pass or measure on, at a look after each block.

Two things are proven, each by the exact test of `signed_rank`, each with its own error budget:

- *regression*: the candidate is slower by more than `tolerance`. `alpha` is divided by the number
  of metrics (Bonferroni: Holm's extra steps only add names to a gate that already failed) and
  spent over the looks, so that is the probability that equal versions fail, over all of it.
- *pass*: a slow-down of `min_effect` or more is ruled out, for every metric. `1 - power` is the
  probability that a metric with such a slow-down passes; it needs no division, since one metric
  that does not pass keeps the gate from passing.

What is neither after the last look is undecided, never a weak pass. The tolerance is above zero
because a gate compares two processes, and two starts of the same code differ a little for as long
as they live (memory layout, pages): that difference is no noise between pairs, and any test that
sees enough pairs proves it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from pipeline.gate.decision.promise import Plan, first_proofs, gate_stops
from pipeline.gate.decision.signed_rank import Floats, middle, shift_at


class Verdict(StrEnum):
    """The verdict on one timed metric, or on all of them."""

    REGRESSION = "regression"
    PASS = "pass"
    GO_ON = "go on"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class MetricVerdict:
    """The verdict on one timed metric; slow-downs are shares, 0.05 is 5 % more time.

    Attributes:
        name: The metric's name: cell and figure.
        verdict: Its own verdict; `go on` only while a match goes on.
        rests_on: Pairs up to the look that decided, or the last one; recorded runs.
        slow_down: Estimate; side by side Hodges and Lehmann's.
        at_least: Slow-down that is proven, with the metric's part of `alpha`; minus infinity where
            too few pairs were seen to prove any.
        at_most: Slow-down above which all is ruled out, with `1 - power`; infinity likewise.
        judges: Smallest slow-down that a run like this calls a regression with the declared power,
            against recorded runs. Where it is above `min_effect`, equal versions are mostly
            undecided. NaN side by side, where more pairs find less.
        candidate: The candidate's figure in ms, or a ratio within its run; NaN until it is told.
        reference: The reference's figure, likewise.
        power: What the run could find, in words.
    """

    name: str
    verdict: Verdict
    rests_on: int
    slow_down: float
    at_least: float
    at_most: float
    judges: float = math.nan
    candidate: float = math.nan
    reference: float = math.nan
    power: str = "–"


@dataclass(frozen=True)
class Decision:
    """The decision on all timed metrics.

    Attributes:
        verdict: `regression` if one metric is; `pass` if all do; else `go on` or, after the last
            look, `undecided`.
        pairs: Pairs seen when it stopped, or up to now.
        metrics: One verdict per metric, in the order given.
    """

    verdict: Verdict
    pairs: int
    metrics: tuple[MetricVerdict, ...]


def decide(values: Mapping[str, Sequence[float]], plan: Plan) -> Decision:
    """Decide on all pairs seen so far; call it again after every round.

    No state is kept: the looks are gone through again from the first pair, so the same values
    always give the same decision, and pairs after the stop or of an unfinished block are not used.

    Args:
        values: By metric, in the order they were measured, log(candidate / reference) of each pair
            of a figure of which more is worse, such as ms per verify step.
        plan: The plan that was fixed before the first pair.

    Raises:
        ValueError: Not one value for each metric of the plan and each pair, or one not finite.
    """
    rows = _rows(values, plan)
    looks = rows.shape[-1] // plan.block
    slow, fast = (look[0] for look in first_proofs(rows[None], plan))
    stop, failed = (x[0] for x in gate_stops(rows[None], plan))
    seen = min(int(stop), looks)
    if failed:
        verdict = Verdict.REGRESSION
    elif stop <= looks:
        verdict = Verdict.PASS
    else:
        verdict = Verdict.UNDECIDED if looks == plan.blocks else Verdict.GO_ON
    open_verdict = Verdict.GO_ON if verdict is Verdict.GO_ON else Verdict.UNDECIDED
    metrics = []
    for name, row, slow_at, fast_at in zip(values, rows, slow, fast, strict=True):
        decided = min(int(slow_at), int(fast_at))
        own = Verdict.REGRESSION if slow_at <= fast_at else Verdict.PASS
        own = own if decided <= seen else open_verdict
        metrics.append(_metric(name, own, row[: min(decided, seen) * plan.block], plan))
    return Decision(verdict, seen * plan.block, tuple(metrics))


def _rows(values: Mapping[str, Sequence[float]], plan: Plan) -> Floats:
    """Return [metrics, pairs] of the finished blocks, checked."""
    lengths = {len(v) for v in values.values()}
    if len(values) != plan.metrics or len(lengths) != 1:
        raise ValueError(
            f"gate: {len(values)} metrics with {sorted(lengths)} pairs; the plan has"
            f" {plan.metrics} metrics, each with one value per pair"
        )
    pairs = min(lengths.pop(), plan.pairs) // plan.block * plan.block
    rows = np.array([v[:pairs] for v in values.values()], dtype=np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("gate: a log ratio is not finite; leave its pair out of every metric")
    return rows


def _metric(name: str, verdict: Verdict, row: Floats, plan: Plan) -> MetricVerdict:
    """Return a metric's verdict with its estimate and limits after the pairs of `row`."""
    looks = len(row) // plan.block
    if looks == 0:
        return MetricVerdict(name, verdict, 0, math.nan, -math.inf, math.inf)
    low = shift_at(row, plan.block, plan.slow_bounds[looks - 1])
    high = -shift_at(-row, plan.block, plan.fast_bounds[looks - 1])
    estimate = middle(row, plan.block)
    return MetricVerdict(
        name, verdict, len(row), math.expm1(estimate), math.expm1(low), math.expm1(high)
    )
