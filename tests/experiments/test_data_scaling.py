"""The fit of accept length against data, on points whose line is known."""

import pytest

from experiments.data_scaling.__main__ import epochs
from experiments.data_scaling.fit import Point, fit, gain

SIZES = (1_000, 4_000, 16_000, 64_000)


def on_a_line(spread=0.02):
    values = [1.5 + 0.1 * place for place in range(4)]  # 0.05 per doubling
    return [
        Point(size, value, value - spread, value + spread)
        for size, value in zip(SIZES, values, strict=True)
    ]


def test_points_on_a_line_give_the_line():
    found = fit(on_a_line(), reference=16_000)
    assert found.at_reference == pytest.approx(1.7)
    assert found.per_doubling == pytest.approx(0.05)
    assert found.worst == pytest.approx(0, abs=1e-9)
    assert gain(found, 16_000, 64_000)[0] == pytest.approx(0.1)


def test_the_interval_is_that_of_a_slope_by_hand():
    """Four points at 0, 2, 4, 6 doublings: the slope's deviation is s / sqrt(20)."""
    found = fit(on_a_line(spread=0.0196), reference=1_000)
    deviation = 0.01 / 20**0.5
    assert found.high - found.low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_two_points_are_no_line():
    with pytest.raises(ValueError, match="2 points: a line needs three or more"):
        fit(on_a_line()[:2], reference=1_000)


def test_small_sets_are_seen_more_often_and_never_without_end():
    assert epochs(200_000) == 2
    assert epochs(37_000) == 4
    assert epochs(10_000) == 13
    assert epochs(1_000) == 20
