"""Which lever can close the gap of a class below break-even."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.measure import Levers
from pipeline.measure.wording import percent


class Lever(NamedTuple):
    """One thing to invest in.

    Attributes:
        name: What to improve.
        share: How much of its whole range breaking even takes; above 1 it cannot.
        meaning: What that share is a share of.
    """

    name: str
    share: float
    meaning: str


def advice(levers: Levers) -> str:
    """Say which levers can close the gap of a cell below break-even, and which is nearest.

    Nearest is the one that needs the smallest part of its whole range: verify from today's cost
    down to that of a plain forward, draft and host time down to nothing, accept length up to the
    step's width. That is no price: what a part costs is for the reader to know.
    """
    able = sorted((x for x in _levers(levers) if x.share <= 1), key=lambda lever: lever.share)
    if not able:
        return "No lever can close it alone: decode plainly here, or combine them."
    nearest, *others = able
    part = f"{nearest.name}: {percent(nearest.share)} {nearest.meaning}"
    if not others:
        return f"Only one lever can close it alone, {part}."
    return f"Nearest is {part}; {' or '.join(x.name for x in others)} can close it too."


def _levers(levers: Levers) -> list[Lever]:
    """Return the three levers; one without any range cannot close a gap."""
    cut = levers.step_ms - levers.needed_step_ms
    rise = levers.break_even - levers.accept_length
    ranges = (
        (
            "a cheaper verify step",
            cut,
            levers.verify_ms - levers.decode_ms,
            "of what verify costs beyond a plain decode step must go",
        ),
        ("less draft and host time", cut, levers.step_ms - levers.verify_ms, "of it must go"),
        (
            "a better drafter",
            rise,
            levers.width - levers.accept_length,
            "of the draft tokens that are lost now must be accepted",
        ),
    )
    return [Lever(name, need / room, what) for name, need, room, what in ranges if room > 0]
