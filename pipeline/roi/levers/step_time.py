"""Compute the worth of levers that shorten a step: verify, draft and host time, width, batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pipeline.measure.wording import number
from pipeline.roi import public_figures as public
from pipeline.roi.contradictions import public_floor_us
from pipeline.roi.levers.accept_length import accept_length_of
from pipeline.roi.levers.gain import Basis, Gain, Range, Side
from pipeline.roi.numbers import Numbers
from pipeline.roi.situation import Situation

DEAR = 1.3  # verify over a plain forward, above which launches are worth a look


def step_levers(at: Situation, numbers: Numbers) -> Iterator[Gain]:
    """Yield what a cheaper step is worth at today's accept length.

    Raises:
        ValueError: The width or the verify time that is asked for cannot be.
    """
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
        f"time drafter and host apart: how much of the {number(at.overhead_ms)} ms beside verify is"
        " forwards of the drafter, and how much waiting",
        limits=True,
    )


def _width(at: Situation, numbers: Numbers) -> Gain:
    """Return what another number of draft tokens is worth, from the accept rate by position.

    The step's cost beyond a plain one is taken as flat at one end, as proportional to the draft
    tokens at the other: measured widths lie between.

    Raises:
        ValueError: The width needs more accept rates than were given.
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


def verify_levers(at: Situation, numbers: Numbers) -> Iterator[Gain]:
    """Yield levers on the target forward; none makes it cheaper than a plain one.

    Raises:
        ValueError: The verify time that was wished for is below a plain forward.
    """
    if at.verify_ms > DEAR * at.plain_forward_ms and not at.captured:
        yield _capture(at)
    if at.allreduces and at.allreduce_ms == at.allreduce_ms:
        yield _allreduce(at)
    wanted = numbers.get("verify_ms_to")
    if wanted is not None:
        yield _wish(at, wanted)
    yield cut_step(
        at,
        "verify as cheap as a plain forward",
        (_floor_ms(at),),
        Basis.BOUND,
        f"plain forward {number(at.plain_forward_ms)} ms + draft and host"
        f" {number(at.overhead_ms)} ms",
        "run a verify step of this width under every verify backend there is: the cheapest"
        f" says how near {number(at.plain_forward_ms)} ms it comes",
        limits=True,
    )


def _floor_ms(at: Situation) -> float:
    """Return the step whose verify costs one plain forward."""
    return at.plain_forward_ms + at.overhead_ms


def _capture(at: Situation) -> Gain:
    """Return what a captured verify step is worth, by what it was worth elsewhere."""
    return cut_step(
        at,
        "capture the verify step in a graph, if it is not yet",
        [max(at.step_ms / gain, _floor_ms(at)) for gain in public.CAPTURE_GAIN],
        Basis.PUBLIC,
        f"eager against captured, whole speed +38 to +97 %: {public.IMP_GRAPHS}; never below a"
        " plain forward",
        "one run each with the graph on and off, reading the share of captured steps",
    )


def _allreduce(at: Situation) -> Gain:
    """Return what all-reduces at their published time are worth."""
    ends = public_floor_us(at)
    others = at.step_ms - at.allreduce_ms
    return cut_step(
        at,
        "bring the all-reduces down to their floor",
        [max(others + at.allreduces * us / 1000, _floor_ms(at)) for us in ends],
        Basis.PUBLIC,
        f"{at.allreduces:.0f} × {number(ends[0])}–{number(ends[1])} µs, NCCL on 8 PCIe GPUs:"
        f" {public.NCCL_PCIE_8[0].source} and four more boxes; never below a plain forward",
        "time one all-reduce of that size alone, captured: `python -m verify.allreduce`",
    )


def _wish(at: Situation, wanted: float) -> Gain:
    """Return what a verify time that someone believes in is worth.

    Raises:
        ValueError: It is below a plain forward.
    """
    if wanted < at.plain_forward_ms:
        raise ValueError(
            f"verify_ms_to={wanted:g}: a verify step costs at least a plain forward,"
            f" {number(at.plain_forward_ms)} ms; give more, or decode_ms if you measured it"
        )
    return cut_step(
        at,
        f"verify in {number(wanted)} ms",
        (wanted + at.overhead_ms,),
        Basis.ASSUMED,
        "verify_ms_to; if draft and host time were nothing it would be"
        f" {number(at.speed_of(at.accept_length, wanted))} tok/s",
        "nothing: you gave one number",
    )


def cut_step(
    at: Situation,
    name: str,
    steps: Sequence[float],
    basis: Basis,
    source: str,
    narrowed_by: str,
    limits: bool = False,
) -> Gain:
    """Return a lever that brings the step to somewhere between two times."""
    low, high = min(steps), max(steps)
    to = number(low) if low == high else f"{number(low)}–{number(high)}"
    return Gain(
        name,
        Side.STEP,
        f"step {number(at.step_ms)} → {to} ms",
        Range(at.step_ms / high, at.step_ms / low, basis, source),
        narrowed_by,
        limits,
    )
