"""How often the gate alarms where nothing changed, and what it finds, in simulation.

    python -m experiments.gate.false_alarms

Every simulated gate goes through the gate's own rule: all metrics, all looks, the promise of
`pipeline.gate.decision.promise`. "equal" are two equal versions; "edge" is the hardest case that
must not alarm, every metric slower by exactly the tolerance. A planted slow-down is in one metric
of four.
The exit status is 1 if the gate alarms in more than 1.5 % of either, or misses a planted 5 %.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from experiments.gate.noise import SHAPES, Shape, gates
from experiments.gate.recorded import RECORDED, RUN_NOISE, recorded
from pipeline.gate.decision.promise import Promise, gate_stops, plan_rounds
from pipeline.measure.wording import table

PLAN = plan_rounds(prompts=12, max_rounds=8, metrics=4, promise=Promise())
EQUAL, PLANTED, BATCH = 10_000, 2_000, 1_000
PLANTS = (0.02, 0.03, 0.05, 0.10)
MOST_ALARMS, LEAST_FOUND = 0.015, 0.95


class Shares(NamedTuple):
    """What became of many gates: shares, and the mean number of pairs of each cell."""

    regression: float
    passed: float
    undecided: float
    pairs: float


def outcomes(shape: Shape, number: int, slow_downs: tuple[float, ...], starts: float = 0) -> Shares:
    """Simulate gates whose metrics are slower by the given shares.

    `starts` is the standard deviation of what two starts of one version differ by, per metric.
    """
    plan = PLAN
    generator = np.random.default_rng(1)
    planted = np.log1p(np.array(slow_downs))[:, None]
    found, open_, looks = 0, 0, 0
    for _ in range(number // BATCH):
        values = gates(shape, generator, BATCH, (plan.metrics, plan.pairs))
        apart = generator.normal(0, starts, (BATCH, plan.metrics, 1))
        stops, regression = gate_stops(values + apart + planted, plan)
        found += int(regression.sum())
        open_ += int((stops > plan.blocks).sum())
        looks += int(np.minimum(stops, plan.blocks).sum())
    rest = number - found - open_
    return Shares(found / number, rest / number, open_ / number, plan.block * looks / number)


def upper_bound(alarms: int, number: int, error: float = 0.05) -> float:
    """Return Clopper and Pearson's upper bound of a probability, at 95 %, by bisection."""
    counts = range(alarms + 1)
    ways = [
        math.lgamma(number + 1) - math.lgamma(k + 1) - math.lgamma(number - k + 1) for k in counts
    ]
    low, high = alarms / number, 1.0
    for _ in range(50):
        p = (low + high) / 2
        logs = [w + k * math.log(p) + (number - k) * math.log1p(-p) for k, w in enumerate(ways)]
        low, high = (p, high) if sum(map(math.exp, logs)) > error else (low, p)
    return high


def side_by_side(broken: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row per shape: alarms of equal versions and at the edge, and what is found."""
    tolerance = PLAN.promise.tolerance
    for name, shape in SHAPES.items():
        equal = outcomes(shape, EQUAL, (0.0,) * PLAN.metrics)
        edge = outcomes(shape, EQUAL, (tolerance,) * PLAN.metrics)
        bound = upper_bound(round(edge.regression * EQUAL), EQUAL)
        plants = [outcomes(shape, PLANTED, (x, 0, 0, 0)) for x in PLANTS]
        if max(equal.regression, edge.regression) > MOST_ALARMS:
            broken.append(f"{name}: too many alarms")
        if plants[PLANTS.index(0.05)].regression < LEAST_FOUND:
            broken.append(f"{name}: 5 % is not found")
        yield (
            name,
            f"{equal.regression:.2%}",
            f"{edge.regression:.2%}",
            f"{bound:.2%}",
            f"{equal.passed:.1%}",
            f"{equal.pairs:.0f}",
            *(f"{p.regression:.1%} / {p.passed:.1%}" for p in plants),
            f"{plants[PLANTS.index(0.05)].pairs:.0f}",
        )


def apart() -> Iterator[tuple[str, ...]]:
    """Yield a row per size of what two starts differ by: how often a gate alarms for that alone."""
    for starts in (0.0025, 0.005, 0.0075, 0.01):
        equal = outcomes(SHAPES["normal"], EQUAL, (0.0,) * PLAN.metrics, starts)
        planted = outcomes(SHAPES["normal"], PLANTED, (0.05, 0, 0, 0), starts)
        yield f"{starts:.2%}", f"{equal.regression:.2%}", f"{planted.regression:.1%}"


def main() -> int:
    """Print the tables; 1 if a promise is broken."""
    began, broken = time.perf_counter(), list[str]()
    print(f"{PLAN}\n{EQUAL} gates of equal versions, {PLANTED} of each planted slow-down\n")
    head = ["noise", "alarms, equal", "alarms, edge", "95 % bound", "equal pass", "pairs"]
    head += [f"{x:.0%} found / passed" for x in PLANTS]
    print(table([*head, "pairs at 5 %"], side_by_side(broken)))
    print("\nwhere two starts of one version differ for as long as they live:\n")
    print(table(["standard deviation", "alarms, equal", "5% found"], apart()))
    print(f"\nagainst recorded runs, run effects of {RUN_NOISE:.0%}, {RECORDED} gates:\n")
    head = ["noise", "recorded runs", "alarms", "judges from", "found there"]
    print(table(head, recorded(PLAN, MOST_ALARMS, broken)))
    print(f"\nbroken promises: {broken or 'none'}; {time.perf_counter() - began:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
