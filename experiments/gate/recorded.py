"""How often the gate alarms against recorded runs of the same version, in simulation.

`experiments.gate.false_alarms` prints it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from experiments.gate.noise import SHAPES, Shape, gates
from pipeline.gate.decision.over_runs import RunFigure, against_recorded, run_figure
from pipeline.gate.decision.promise import Plan
from pipeline.gate.decision.sequential import MetricVerdict, Verdict

RECORDED = 2_000
RUN_NOISE = 0.03
"""Standard deviation of a run effect, simulated and declared alike."""


def recorded_figures(
    generator: np.random.Generator, shape: Shape, runs: int, metrics: int
) -> list[list[RunFigure]]:
    """Return [runs][metrics] figures of one version: 12 prompts, 4 repetitions in each run."""
    effects = generator.normal(0, math.log1p(RUN_NOISE), (runs, metrics, 1))
    noise = gates(shape, generator, runs, (metrics, 12 * 4))
    ratios = np.exp(effects + noise).reshape(runs, metrics, 12, 4)
    return [[run_figure(metric) for metric in run.tolist()] for run in ratios]


def recorded_shares(shape: Shape, references: int, plan: Plan) -> tuple[float, float, float]:
    """Simulate gates against recorded runs of the same version.

    Returns:
        The share that alarms; the median of the slow-downs that they say they judge; the share
        that finds one of just that size in its first metric.
    """
    generator, alarms, judges, found = np.random.default_rng(2), 0, [], 0
    for _ in range(RECORDED):
        candidate, *recorded = recorded_figures(generator, shape, references + 1, plan.metrics)
        pairs = list(zip(candidate, zip(*recorded, strict=True), strict=True))
        verdicts = [_against(c, r, plan) for c, r in pairs]
        alarms += any(v.verdict is Verdict.REGRESSION for v in verdicts)
        judges.append(verdicts[0].judges)
        slowed = candidate[0].value + math.log1p(judges[-1])
        planted = _against(replace(candidate[0], value=slowed), pairs[0][1], plan)
        found += planted.verdict is Verdict.REGRESSION
    return alarms / RECORDED, float(np.median(judges)), found / RECORDED


def _against(candidate: RunFigure, recorded: Sequence[RunFigure], plan: Plan) -> MetricVerdict:
    """Judge one metric as the gate does, with the run noise that is simulated."""
    return against_recorded("metric", candidate, recorded, plan.metrics, plan.promise, RUN_NOISE)


def recorded(plan: Plan, most_alarms: float, broken: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield a row per shape and number of recorded runs; note in `broken` where it alarms often."""
    for name in ("normal", "heavy tail", "two speeds"):
        for references in (1, 3, 8):
            alarms, judges, found = recorded_shares(SHAPES[name], references, plan)
            if alarms > most_alarms:
                broken.append(f"{name}, {references} recorded: too many alarms")
            yield name, str(references), f"{alarms:.2%}", f"{judges:.1%}", f"{found:.1%}"
