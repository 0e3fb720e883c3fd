"""A step taken apart by what is left out of it, and compared with what its trace says."""

import pytest

from experiments.verify_cost.breakdown import by_ablation, classes
from experiments.verify_cost.breakdown_shown import furthest
from verify.breakdown import Breakdown, Floor, Kernel, by_trace

# Two steps of: product, all-reduce (starts early, floor 3, spins 2 more), a gap of 4, product.
STEP = [
    Kernel("product", 0.0, 10.0),
    Kernel("one_shot", 6.0, 15.0),
    Kernel("product", 19.0, 29.0),
]
TRACE = [Kernel(k.name, k.begin + at, k.end + at) for at in (0.0, 100.0) for k in STEP]
FLOOR = Floor(calls=1, call_us=3.0)


def test_parts_are_compared_as_shares_of_their_own_step():
    one = by_trace(TRACE, 2, FLOOR)
    slower = Breakdown(2 * one.compute, 2 * one.wire, 2 * one.wait, 2 * one.launch)
    assert furthest(one, slower) < 1e-9


def test_ablation_gives_the_same_parts_as_the_trace():
    # Without communication: two products and the gap; captured, the gap is gone.
    found = by_ablation(total_ms=0.029, silent_ms=0.024, silent_captured_ms=0.020, floor=FLOOR)
    assert furthest(found, by_trace(TRACE, 2, FLOOR)) < 1e-9
    assert found.total == pytest.approx(0.029)


def test_communication_hidden_in_launch_gaps_is_never_counted_twice():
    found = by_ablation(total_ms=0.025, silent_ms=0.024, silent_captured_ms=0.010, floor=FLOOR)
    assert found.wait == 0
    assert found.total == pytest.approx(0.025)


def test_one_gpu_waits_for_nobody_however_two_timings_differ():
    found = by_ablation(13.7, 12.3, 4.4, Floor(0, 0.0))
    assert (found.wire, found.wait) == (0, 0)
    assert found.launch == pytest.approx(9.3)
    assert found.total == pytest.approx(13.7)


def test_classes_count_calls_and_own_time_a_step():
    assert classes(TRACE, 2) == {"product": (2.0, 20.0), "one_shot": (1.0, 5.0)}
