"""The fit of accept length against data, on points whose curve is known."""

import pytest

from experiments.data_scaling.__main__ import epochs
from experiments.data_scaling.fit import Point, fit, gain

SIZES = (1_000, 4_000, 16_000, 64_000, 256_000)


def on_a_curve(spread=0.02):
    values = [2.5 - 0.4 * (size / 16_000) ** -0.3 for size in SIZES]
    return [
        Point(size, value, value - spread, value + spread)
        for size, value in zip(SIZES, values, strict=True)
    ]


def test_points_on_a_curve_give_the_curve():
    found = fit(on_a_curve(), reference=16_000)
    assert found.ceiling == pytest.approx(2.5)
    assert found.distance == pytest.approx(0.4)
    assert found.exponent == pytest.approx(0.3)
    assert found.worst == pytest.approx(0, abs=1e-9)
    assert found.at(4) == pytest.approx(2.5 - 0.4 * 4**-0.3)


def test_a_gain_lies_within_its_interval_and_noise_widens_it():
    true = 0.4 * (1 - 4**-0.3)
    sure, unsure = (gain(on_a_curve(spread), 16_000, 64_000) for spread in (0.01, 0.05))
    for found in (sure, unsure):
        assert found.value == pytest.approx(true)
        assert found.low < true < found.high
    assert unsure.high - unsure.low > 2 * (sure.high - sure.low)


def test_three_points_are_no_curve():
    with pytest.raises(ValueError, match="3 points: a curve needs four or more"):
        fit(on_a_curve()[:3], reference=1_000)


def test_small_sets_are_seen_more_often_and_never_without_end():
    assert epochs(200_000) == 1
    assert epochs(37_000) == 4
    assert epochs(10_000) == 13
    assert epochs(1_000) == 20
