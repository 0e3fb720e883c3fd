"""What to invest in next: levers that can close the gap, bounds that could, or plain decoding."""

import pytest

from pipeline.roi.levers.gain import Basis, Gain, Range, Side
from pipeline.roi.numbers import parse
from pipeline.roi.text import headline
from pipeline.roi.verdict import Ground, decide, from_numbers


def lever(name, low, high, side=Side.ACCEPT, limits=False):
    basis = Basis.BOUND if limits else Basis.PUBLIC
    return Gain(name, side, "", Range(low, high, basis, "x"), "y", limits)


DATA = lever("data", 1.04, 1.2)
CAPTURE = lever("capture", 1.4, 2.0, Side.STEP)
VERIFY = lever("verify", 1.9, 1.9, Side.STEP, limits=True)
DRAFT = lever("draft", 2.2, 2.2, Side.STEP, limits=True)
RIGHT = lever("right", 3.0, 3.0, limits=True)
LOAD = lever("batch", 5.0, 9.0, Side.LOAD)


@pytest.mark.parametrize(
    ("speed_up", "gains", "ground", "names"),
    [
        (1.2, [DATA, CAPTURE], Ground.PAYS, ["capture"]),
        (1.2, [VERIFY, LOAD], Ground.KEEP, []),
        (0.8, [DATA, CAPTURE, VERIFY], Ground.SURE, ["capture"]),
        (0.6, [DATA, CAPTURE, DRAFT], Ground.ABLE, ["capture"]),
        (0.5, [DATA, VERIFY, DRAFT], Ground.BOUND, ["draft"]),
        # Breaking even takes 83 % of what drafting costs, 94 % of verify, 44 % of lost tokens.
        (0.53, [DATA, VERIFY, DRAFT, RIGHT], Ground.BOUND, ["right"]),
        (0.45, [DATA, CAPTURE, VERIFY], Ground.TOGETHER, ["data", "capture"]),
        (0.45, [DATA, VERIFY], Ground.TOGETHER, ["data", "verify"]),
        (0.2, [DATA, CAPTURE, VERIFY, LOAD], Ground.PLAIN, []),
        (0.9, [], Ground.PLAIN, []),
    ],
)
def test_the_decision_is_a_lever_that_can_close_the_gap(speed_up, gains, ground, names):
    found = decide(speed_up, gains)
    assert (found.ground, [g.name for g in found.levers]) == (ground, names)


@pytest.mark.parametrize("speed_up", [0.1 * i for i in range(1, 11)])
def test_below_break_even_what_is_next_reaches_it(speed_up):
    found = decide(speed_up, [DATA, CAPTURE, VERIFY, DRAFT, RIGHT, LOAD])
    assert not found.levers or found.ends(speed_up)[1] >= 1
    assert LOAD not in found.levers


def test_typed_in_numbers_get_the_bound_that_alone_could_close_the_gap():
    numbers = "baseline_tok_s=100 accept_length=2.05 step_ms=40.9 verify_ms=10.4 width=4"
    found = from_numbers(parse(numbers.split()))
    third = headline(found)[2]
    assert third.startswith(
        "**Next:** draft and host for nothing, a bound, but the only lever that could close the gap"
        " alone: at most 197 tok/s (1.97x the baseline). To settle it, time drafter and host apart:"
    )
    data = next(g for g in found.gains if g.name.startswith("more training data"))
    assert data.factor.high * found.situation.speed_up < 1


def test_a_drafter_that_nothing_helps_is_not_given_a_lever():
    numbers = "baseline_tok_s=100 accept_length=1.2 step_ms=200 verify_ms=150 width=4 decode_ms=60"
    third = headline(from_numbers(parse(numbers.split())))[2]
    assert third == (
        "**Next:** no lever is known to close the gap, alone or with another; decode plainly."
    )
