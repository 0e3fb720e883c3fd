"""Levers that shorten the step: a cheaper verify, draft cost, width, batch."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline.measure.wording import number
from pipeline.roi import public_figures as public
from pipeline.roi.gains import Gain, Side
from pipeline.roi.levers.gain import Basis, Range
from pipeline.roi.levers.width import accept_length_of
from pipeline.roi.numbers import Numbers
from pipeline.roi.situation import Situation
from pipeline.roi.verify_levers import cut_step, verify_levers


def step_levers(at: Situation, numbers: Numbers) -> Iterator[Gain]:
    """Yield what a cheaper step is worth at today's accept length."""
    if at.overhead_ms >= 0 and at.verify_ms > at.plain_forward_ms:
        yield from verify_levers(at, numbers)
    if at.overhead_ms > 0:
        yield from _draft(at, numbers)
    if at.width > 2 and numbers.accept_rate:
        yield _width(at, numbers)
    if at.batch == 1:
        yield Gain(
            "batch 8 instead of 1",
            Side.LOAD,
            f"speed-up {number(at.speed_up)}x, both sides at that batch",
            Range(*public.BATCH_8, Basis.PUBLIC, public.BATCH_SOURCE),
            "run the baseline and this cell at the batch that you serve",
        )


def _draft(at: Situation, numbers: Numbers) -> Iterator[Gain]:
    """Yield levers on draft and host time."""
    wanted = numbers.get("draft_ms_to")
    if wanted is not None:
        draft = at.overhead_ms if math.isnan(at.draft_ms) else at.draft_ms
        step = at.step_ms - draft + wanted
        yield cut_step(
            at, f"draft in {number(wanted)} ms", (step,), Basis.ASSUMED, "draft_ms_to", "nothing"
        )
    yield cut_step(
        at,
        "draft and host for nothing",
        (at.verify_ms,),
        Basis.BOUND,
        f"the step without its {number(at.overhead_ms)} ms beside verify",
        "nothing: it is a bound",
        limits=True,
    )


def _width(at: Situation, numbers: Numbers) -> Gain:
    """Return what another number of draft tokens is worth, from the accept rate by position.

    The step's cost beyond a plain one is taken as flat at one end, as proportional to the draft
    tokens at the other: measured widths lie between.
    """
    wanted = int(numbers.values.get("width_to", max(2, at.width - 1)))
    known_width = len(numbers.accept_rate) + 1
    if wanted > known_width:
        raise ValueError(
            f"width_to={wanted}: accept_rate has {known_width - 1} positions, which is a width of"
            f" {known_width} at most; give more rates"
        )
    length = accept_length_of(numbers.accept_rate, wanted)
    now = accept_length_of(numbers.accept_rate, at.width)
    plain = min(at.ms_per_token, at.step_ms)
    scaled = plain + (at.step_ms - plain) * (wanted - 1) / (at.width - 1)
    ends = [length / now * at.step_ms / step for step in (at.step_ms, scaled)]
    return Gain(
        f"width {wanted} instead of {at.width}",
        Side.BOTH,
        f"accept length {number(now)} → {number(length)}, step {number(at.step_ms)} →"
        f" {number(scaled)}–{number(at.step_ms)} ms",
        Range(min(ends), max(ends), Basis.ASSUMED, "accept_rate; step between flat and linear"),
        f"time the verify step at width {wanted} and at {at.width}",
    )
