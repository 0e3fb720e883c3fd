"""How often the gate alarms where nothing changed, and what it finds, in simulation.

    python -m benchmarks.gate_false_alarms

Every simulated gate goes through the gate's own rule: all metrics, all looks, the promise of
`pipeline.gate.promise`. "equal" are two equal versions; "edge" is the hardest case that must not
alarm, every metric slower by exactly the tolerance. A planted slow-down is in one metric of four.
The exit status is 1 if the gate alarms in more than 1.5 % of either, or misses a planted 5 %.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from benchmarks.gate_noise import SHAPES, Shape, gates
from pipeline.gate.promise import Plan, Promise, plan_rounds
from pipeline.gate.recorded import RecordedVerdict, RunFigure, against_recorded, run_figure
from pipeline.gate.sequential import Verdict
from pipeline.gate.stopping import gate_stops
from pipeline.wording import table

PLAN = plan_rounds(prompts=12, max_rounds=8, metrics=4, promise=Promise())
EQUAL, PLANTED, BATCH, RECORDED = 10_000, 2_000, 1_000, 2_000
PLANTS = (0.02, 0.03, 0.05, 0.10)
MOST_ALARMS, LEAST_FOUND = 0.015, 0.95
RUN_NOISE = 0.03
"""Standard deviation of a run effect, simulated and declared alike."""


class Shares(NamedTuple):
    """What became of many gates: shares, and the mean number of pairs of each cell."""

    regression: float
    passed: float
    undecided: float
    pairs: float


def outcomes(shape: Shape, number: int, slow_downs: tuple[float, ...], plan: Plan) -> Shares:
    """Simulate gates whose metrics are slower by the given shares."""
    generator = np.random.default_rng(1)
    planted = np.log1p(np.array(slow_downs))[:, None]
    found, open_, looks = 0, 0, 0
    for _ in range(number // BATCH):
        values = gates(shape, generator, BATCH, (plan.metrics, plan.pairs))
        stops, regression = gate_stops(values + planted, plan)
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
        equal = outcomes(shape, EQUAL, (0.0,) * PLAN.metrics, PLAN)
        edge = outcomes(shape, EQUAL, (tolerance,) * PLAN.metrics, PLAN)
        bound = upper_bound(round(edge.regression * EQUAL), EQUAL)
        plants = [outcomes(shape, PLANTED, (x, 0, 0, 0), PLAN) for x in PLANTS]
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


def recorded_figures(
    generator: np.random.Generator, shape: Shape, runs: int
) -> list[list[RunFigure]]:
    """Return [runs][metrics] figures of one version: 12 prompts, 4 repetitions in each run."""
    effects = generator.normal(0, math.log1p(RUN_NOISE), (runs, PLAN.metrics, 1))
    noise = gates(shape, generator, runs, (PLAN.metrics, 12 * 4))
    ratios = np.exp(effects + noise).reshape(runs, PLAN.metrics, 12, 4)
    return [[run_figure(metric) for metric in run.tolist()] for run in ratios]


def recorded_shares(shape: Shape, references: int) -> tuple[float, float, float]:
    """Simulate gates against recorded runs of the same version.

    Returns:
        The share that alarms; the median of the slow-downs that they say they judge; the share
        that finds one of just that size in its first metric.
    """
    generator, alarms, judges, found = np.random.default_rng(2), 0, [], 0
    for _ in range(RECORDED):
        candidate, *recorded = recorded_figures(generator, shape, references + 1)
        pairs = list(zip(candidate, zip(*recorded, strict=True), strict=True))
        verdicts = [_against(c, r) for c, r in pairs]
        alarms += any(v.verdict is Verdict.REGRESSION for v in verdicts)
        judges.append(verdicts[0].judges)
        slowed = candidate[0].value + math.log1p(judges[-1])
        planted = _against(replace(candidate[0], value=slowed), pairs[0][1])
        found += planted.verdict is Verdict.REGRESSION
    return alarms / RECORDED, float(np.median(judges)), found / RECORDED


def _against(candidate: RunFigure, recorded: Sequence[RunFigure]) -> RecordedVerdict:
    """Judge one metric as the gate does, with the run noise that is simulated."""
    return against_recorded(candidate, recorded, PLAN.metrics, PLAN.promise, RUN_NOISE)


def recorded(broken: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row per shape and number of recorded runs."""
    for name in ("normal", "heavy tail", "two speeds"):
        for references in (1, 3, 8):
            alarms, judges, found = recorded_shares(SHAPES[name], references)
            if alarms > MOST_ALARMS:
                broken.append(f"{name}, {references} recorded: too many alarms")
            yield name, str(references), f"{alarms:.2%}", f"{judges:.1%}", f"{found:.1%}"


def main() -> int:
    """Print the tables; 1 if a promise is broken."""
    began, broken = time.perf_counter(), list[str]()
    print(f"{PLAN}\n{EQUAL} gates of equal versions, {PLANTED} of each planted slow-down\n")
    head = ["noise", "alarms, equal", "alarms, edge", "95 % bound", "equal pass", "pairs"]
    head += [f"{x:.0%} found / passed" for x in PLANTS]
    print(table([*head, "pairs at 5 %"], side_by_side(broken)))
    print(f"\nagainst recorded runs, run effects of {RUN_NOISE:.0%}, {RECORDED} gates:\n")
    print(
        table(["noise", "recorded runs", "alarms", "judges from", "found there"], recorded(broken))
    )
    print(f"\nbroken promises: {broken or 'none'}; {time.perf_counter() - began:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
