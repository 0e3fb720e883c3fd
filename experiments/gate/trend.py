"""Does a change-point package find slow drift better than the gate's own test, at an equal rate?

    python -m experiments.gate.trend

Series of runs in which nothing changes, and others that drift or step by 5 %, go through
`pipeline.gate.decision.over_runs` and through Apache Otava and ruptures where they are installed
(`pip install apache-otava ruptures`; neither is a dependency). Only growth counts as an alarm.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise

import numpy as np

from pipeline.gate.decision.over_runs import trend
from pipeline.gate.decision.signed_rank import Floats
from pipeline.measure.wording import table

Detector = Callable[[Sequence[float]], bool]
RUNS, QUIET, CHANGED, NOISE, GROWTH = 20, 2000, 500, 0.02, 0.05


def detectors() -> Iterator[tuple[str, Detector]]:
    """Yield what can be run here: a name, and whether a series grew."""
    yield "trend, alpha 1 %", lambda series: trend(series, 0.01).drifts
    if find_spec("otava"):
        for p in (0.01, 0.001):
            yield f"Otava, p {p:g}", otava(p)
    if find_spec("ruptures"):
        yield "ruptures, PELT with BIC", ruptures


def otava(p: float) -> Detector:
    """Return Otava's detector at its own setting of `p`."""
    from otava.analysis import compute_change_points

    def grew(series: Sequence[float]) -> bool:
        points, _ = compute_change_points(list(series), max_pvalue=p)
        return any(point.stats.mean_2 > point.stats.mean_1 for point in points)

    return grew


def ruptures(series: Sequence[float]) -> bool:
    """Whether PELT with the usual penalty, the noise known, finds a step up."""
    import ruptures as package

    logs = np.log(np.array(series))
    ends = package.Pelt("l2", min_size=2, jump=1).fit(logs).predict(2 * NOISE**2 * math.log(RUNS))
    parts = [part.mean() for part in np.split(logs, ends[:-1])]
    return any(later > earlier for earlier, later in pairwise(parts))


def quiet(generator: np.random.Generator, number: int) -> Floats:
    """Return [number, RUNS] log figures of independent runs in which nothing changes."""
    return generator.normal(0, NOISE, (number, RUNS))


def heavy(generator: np.random.Generator, number: int) -> Floats:
    """The same with Student's t of three degrees of freedom."""
    return generator.standard_t(3, (number, RUNS)) * NOISE / math.sqrt(3)


def remembering(generator: np.random.Generator, number: int) -> Floats:
    """Runs that keep 30 % of the last one's deviation."""
    series = quiet(generator, number)
    for run in range(1, RUNS):
        series[:, run] = 0.3 * series[:, run - 1] + math.sqrt(1 - 0.3**2) * series[:, run]
    return series


def main() -> int:
    """Print the share of series that alarm."""
    drift = math.log1p(GROWTH) * np.linspace(0, 1, RUNS)
    step = math.log1p(GROWTH) * (np.arange(RUNS) >= RUNS // 2)
    generator = np.random.default_rng(3)
    series = {
        "quiet": quiet(generator, QUIET),
        "quiet, heavy tail": heavy(generator, QUIET),
        "quiet, runs remember": remembering(generator, QUIET),
        f"drift of {GROWTH:.0%}": quiet(generator, CHANGED) + drift,
        f"step of {GROWTH:.0%}": quiet(generator, CHANGED) + step,
    }
    print(f"{RUNS} runs, noise between runs {NOISE:.0%}: share of series that alarm\n")
    rows = [
        (
            name,
            *(
                f"{np.mean([grew(s) for s in np.exp(found).tolist()]):.1%}"
                for found in series.values()
            ),
        )
        for name, grew in detectors()
    ]
    print(table(["", *series], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
