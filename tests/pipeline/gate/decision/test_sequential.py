"""The gate keeps its promises over all metrics and looks, and never passes weakly."""

import math

import numpy as np
import pytest

from pipeline.gate.decision.promise import Promise, candidate_first, gate_stops, plan_rounds
from pipeline.gate.decision.sequential import Verdict, decide

PLAN = plan_rounds(prompts=12, max_rounds=8, metrics=3, promise=Promise())


def pairs(slow_down, spread, number=PLAN.pairs, seed=0):
    """Return log ratios of pairs of a given slow-down, with heavy-tailed noise."""
    noise = np.random.default_rng(seed).standard_t(3, number)
    return (math.log1p(slow_down) + spread * noise).tolist()


def gates(slow_downs, number=2000):
    """Return many gates whose noise has no variance and whose state drifts: t(2), coins, waves."""
    generator = np.random.default_rng(5)
    sizes = 0.02 * generator.standard_t(2, (number, PLAN.metrics, PLAN.pairs))
    state = 0.05 * np.sin(np.arange(PLAN.pairs) / 7)
    coins = generator.choice([-1, 1], (number, 1, PLAN.pairs))
    return coins * (sizes + state) + np.log1p(slow_downs)[:, None]


def test_versions_at_the_edge_of_the_tolerance_alarm_no_more_often_than_alpha():
    # The hardest case under the promise: every metric slower by just the tolerance. 2,000 gates at
    # 1 % give 20 alarms, give or take 4.5; 30 is the 1.5 % that is asked for.
    _, regression = gate_stops(gates([0.01] * 3), PLAN)
    assert 0 < regression.sum() <= 30


def test_equal_versions_pass_and_stop_early():
    stops, regression = gate_stops(gates([0.0] * 3), PLAN)
    assert regression.mean() < 0.002
    assert (stops <= PLAN.blocks).mean() > 0.99
    assert stops.mean() < 4


def test_five_percent_in_one_metric_of_three_is_found():
    stops, regression = gate_stops(gates([0.05, 0.0, 0.0]), PLAN)
    assert regression.mean() > 0.99
    assert stops.mean() < 4


def test_the_smallest_effect_passes_no_more_often_than_the_promised_power_allows():
    # 5 % of 2,000, and three standard errors of 0.5 %.
    stops, regression = gate_stops(gates([0.03, 0.0, 0.0]), PLAN)
    assert (~regression & (stops <= PLAN.blocks)).mean() < 0.065


def test_a_slow_metric_fails_the_gate_by_name_and_the_others_keep_their_own_verdict():
    values = {
        "verify_ms": pairs(0.05, 0.01, seed=1),
        "decode_ms": pairs(0.0, 0.001, seed=2),
        "draft_ms": pairs(0.0, 0.2, seed=3),
    }
    found = decide(values, PLAN)
    assert found.verdict is Verdict.REGRESSION
    assert {m.name: m.verdict for m in found.metrics} == {
        "verify_ms": Verdict.REGRESSION,
        "decode_ms": Verdict.PASS,
        "draft_ms": Verdict.UNDECIDED,
    }
    slow = found.metrics[0]
    assert slow.slow_down == pytest.approx(0.05, abs=0.01)
    assert PLAN.promise.tolerance < slow.at_least < slow.slow_down < slow.at_most


def test_limits_and_verdict_say_the_same():
    promise = PLAN.promise
    for seed in range(40):
        rows = {name: pairs(0.02, 0.015, seed=3 * seed + i) for i, name in enumerate("abc")}
        for metric in decide(rows, PLAN).metrics:
            if metric.verdict is Verdict.REGRESSION:
                assert metric.at_least > promise.tolerance
            elif metric.verdict is Verdict.PASS:
                assert metric.at_most < promise.min_effect


def test_noise_that_hides_everything_goes_on_and_ends_undecided_never_as_a_pass():
    values = {name: pairs(0.0, 0.3, seed=i) for i, name in enumerate("abc")}
    early = decide({k: v[:24] for k, v in values.items()}, PLAN)
    assert early.verdict is Verdict.GO_ON
    assert {m.verdict for m in early.metrics} == {Verdict.GO_ON}
    late = decide(values, PLAN)
    assert (late.verdict, late.pairs) == (Verdict.UNDECIDED, PLAN.pairs)


def test_pairs_after_the_stop_and_of_an_unfinished_block_change_nothing():
    values = {name: pairs(0.0, 0.004, seed=i) for i, name in enumerate("abc")}
    stopped = decide({k: v[:24] for k, v in values.items()}, PLAN)
    assert stopped.verdict is Verdict.PASS
    worse = {k: v[:24] + [3.0] * 72 for k, v in values.items()}
    assert decide(worse, PLAN) == stopped
    half = decide({k: v[:23] for k, v in values.items()}, PLAN)
    assert half == decide({k: v[:12] for k, v in values.items()}, PLAN)


def test_before_the_first_look_nothing_is_known():
    found = decide({name: [0.0] * 11 for name in "abc"}, PLAN)
    assert (found.verdict, found.pairs) == (Verdict.GO_ON, 0)
    assert all(m.at_least == -math.inf and m.at_most == math.inf for m in found.metrics)


def test_metrics_must_be_those_of_the_plan_with_a_value_for_each_pair():
    with pytest.raises(ValueError, match="2 metrics with \\[12\\] pairs; the plan has 3"):
        decide({"a": [0.0] * 12, "b": [0.0] * 12}, PLAN)
    with pytest.raises(ValueError, match="each with one value per pair"):
        decide({"a": [0.0] * 12, "b": [0.0] * 12, "c": [0.0] * 11}, PLAN)
    with pytest.raises(ValueError, match="not finite; leave its pair out"):
        decide({"a": [0.0] * 12, "b": [0.0] * 12, "c": [math.nan] * 12}, PLAN)


def test_a_block_is_a_whole_number_of_rounds_with_at_least_twelve_pairs():
    small = plan_rounds(prompts=5, max_rounds=10, metrics=1, promise=Promise())
    assert (small.block, small.blocks, small.pairs) == (15, 3, 45)  # the tenth round fills none
    assert PLAN.block == 12
    with pytest.raises(ValueError, match=r"gate\.max_rounds=2: 5 prompts need at least 3 rounds"):
        plan_rounds(prompts=5, max_rounds=2, metrics=1, promise=Promise())


@pytest.mark.parametrize(
    ("setting", "value"),
    [("alpha", 0.0), ("alpha", 0.5), ("power", 1.0), ("power", 0.3), ("tolerance", -0.01)],
)
def test_a_promise_that_cannot_be_kept_is_refused_by_name(setting, value):
    with pytest.raises(ValueError, match=f"gate.{setting}={value}"):
        Promise(**{setting: value})


def test_an_effect_within_the_tolerance_is_refused():
    with pytest.raises(ValueError, match=r"under gate\.min_effect=0\.01"):
        Promise(min_effect=0.01)


def test_the_order_within_pairs_is_drawn_anew_by_each_seed_and_known_from_it():
    first = candidate_first(1000, seed=4)
    assert first == candidate_first(1000, seed=4) != candidate_first(1000, seed=5)
    assert 450 < sum(first) < 550
