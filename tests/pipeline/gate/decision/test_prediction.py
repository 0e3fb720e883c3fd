"""Against recorded runs the unit is the run, and what cannot be judged is said."""

import math

import numpy as np
import pytest

from pipeline.gate.decision.over_runs import RunFigure, against_recorded, quantile, run_figure
from pipeline.gate.decision.promise import Promise
from pipeline.gate.decision.sequential import Verdict

PROMISE = Promise()
# Printed tables of Student's t: 95 %, 99 %, 99.9 %.
STUDENT = {1: (6.314, 31.82, 318.3), 5: (2.015, 3.365, 5.893), 30: (1.697, 2.457, 3.385)}


def runs(generator, number, effect):
    """Return figures of runs of one version that differ by a run effect."""
    return [
        run_figure(np.exp(generator.normal(start, 0.02, (12, 4))).tolist())
        for start in generator.normal(0, effect, number)
    ]


@pytest.mark.parametrize(("freedom", "expected"), STUDENT.items())
def test_quantiles_agree_with_the_printed_table(freedom, expected):
    found = [quantile(p, freedom) for p in (0.95, 0.99, 0.999)]
    assert found == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("references", [1, 3, 8])
def test_another_run_of_the_same_version_alarms_no_more_often_than_alpha(references):
    # 1,000 gates at 1 %: 10, give or take 3.1.
    generator, alarms = np.random.default_rng(1), 0
    for _ in range(1000):
        candidate, *recorded = runs(generator, references + 1, 0.03)
        found = against_recorded("step", candidate, recorded, 1, PROMISE, 0.03)
        alarms += found.verdict is Verdict.REGRESSION
    assert alarms <= 20


def test_one_recorded_run_judges_only_large_slow_downs_and_says_from_where():
    recorded = [RunFigure(math.log(1.6), 0.0)]
    # Two runs of 3 % each: sqrt(2) x 0.0296 x (2.326 + 1.645) = 0.166, and the tolerance.
    same = against_recorded("step", RunFigure(math.log(1.6), 0.0), recorded, 1, PROMISE, 0.03)
    assert same.verdict is Verdict.UNDECIDED
    assert same.judges == pytest.approx(math.exp(0.166) * 1.01 - 1, abs=0.001)
    slow = RunFigure(math.log(1.6) + 0.18, 0.0)
    found = against_recorded("step", slow, recorded, 1, PROMISE, 0.03)
    assert found.verdict is Verdict.REGRESSION
    assert found.slow_down == pytest.approx(math.expm1(0.18))


def test_many_runs_that_agree_judge_small_slow_downs_whatever_was_declared():
    generator = np.random.default_rng(2)
    candidate, *recorded = runs(generator, 11, 0.002)
    found = against_recorded("step", candidate, recorded, 3, PROMISE, 0.5)
    assert found.verdict is Verdict.PASS
    assert found.judges < PROMISE.min_effect


def test_recorded_runs_that_lie_further_apart_than_declared_count_as_they_are():
    apart = [RunFigure(value, 0.001) for value in (-0.1, 0.0, 0.1)]
    together = [RunFigure(value, 0.001) for value in (-0.001, 0.0, 0.001)]
    candidate = RunFigure(0.15, 0.001)
    assert against_recorded("step", candidate, apart, 1, PROMISE, 0.03).verdict is Verdict.UNDECIDED
    assert (
        against_recorded("step", candidate, together, 1, PROMISE, 0.03).verdict
        is Verdict.REGRESSION
    )


def test_a_candidate_with_more_noise_than_the_recorded_runs_is_judged_less_sharply():
    recorded = [RunFigure(0.001 * i, 0.001) for i in range(8)]
    sharp = against_recorded("step", RunFigure(0.0, 0.001), recorded, 1, PROMISE, 0.03)
    blunt = against_recorded("step", RunFigure(0.0, 0.03), recorded, 1, PROMISE, 0.03)
    assert blunt.judges > sharp.judges + 0.05


def test_a_run_figure_is_the_mean_over_prompts_of_medians_with_the_noise_of_both():
    # Medians 2 and 8: sqrt(2 x 8). The logs of 4, 8, 16 have the variance (log 2)², the others 0.
    found = run_figure([[2.0, 2.0, 2.0], [4.0, 8.0, 16.0]])
    assert found.value == pytest.approx(math.log(4))
    assert found.noise == pytest.approx(math.log(2) * math.sqrt(math.pi / 2 / 3) / 2)


def test_what_cannot_be_a_figure_is_refused():
    with pytest.raises(ValueError, match="each with at least 2 repetitions"):
        run_figure([[1.0, 1.0], [1.0]])
    with pytest.raises(ValueError, match="each with at least 2 repetitions"):
        run_figure([])
    with pytest.raises(ValueError, match="a ratio is not above 0"):
        run_figure([[1.0, 0.0]])
    with pytest.raises(ValueError, match="no reference run; record one"):
        against_recorded("step", RunFigure(0.0, 0.0), [], 1, PROMISE, 0.03)
    with pytest.raises(ValueError, match=r"gate\.run_noise=0: above 0"):
        against_recorded("step", RunFigure(0.0, 0.0), [RunFigure(0.0, 0.0)], 1, PROMISE, 0)
