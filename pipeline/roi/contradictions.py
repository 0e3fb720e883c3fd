"""Numbers that contradict each other or the machine: said before anything is built on them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline.measure.wording import number
from pipeline.roi.public_figures import NCCL_PCIE_8, floor_us
from pipeline.roi.situation import Situation

TOLERANCE = 0.02  # numbers that people quote have two digits
TYPICAL_KIB = (4.0, 256.0)  # message sizes of decode and verify steps of large targets
FAR = 2.0  # an all-reduce this many times the slowest public one needs an explanation


def clashes(situation: Situation) -> list[str]:
    """Return what does not fit, one sentence each; nothing if all of it can be true."""
    found = (_length(situation), _step(situation), _decode(situation), _allreduce(situation))
    return [sentence for sentences in found for sentence in sentences]


def _length(at: Situation) -> Iterator[str]:
    """Yield what is impossible about the accept length."""
    if at.accept_length < 1 - TOLERANCE:
        yield (
            f"accept length {at.accept_length:.2f} is below 1, but every verify step commits at"
            " least one token: tok/s or step time is wrong"
        )
    if at.width and at.accept_length > at.width * (1 + TOLERANCE):
        yield f"accept length {at.accept_length:.2f} exceeds the width, {at.width} rows"
    if at.speed_up > at.accept_length * (1 + TOLERANCE):
        yield (
            f"the speed-up {at.speed_up:.2f}x exceeds accept length {at.accept_length:.2f}: a"
            " verify step cannot be cheaper than a plain step, so the baseline was slowed"
        )


def _step(at: Situation) -> Iterator[str]:
    """Yield a step that is shorter than its own verify."""
    if at.overhead_ms < -TOLERANCE * at.step_ms:
        most = at.accept_length * 1000 * at.batch / at.verify_ms
        least = at.tok_s * at.verify_ms / 1000 / at.batch
        yield (
            f"{number(at.accept_length)} tokens a step at {number(at.tok_s)} tok/s is a step of"
            f" {number(at.step_ms)} ms, less than its own verify of {number(at.verify_ms)} ms: one"
            f" of the two is wrong. With that verify, accept length {number(at.accept_length)}"
            f" gives at most {number(most)} tok/s, and {number(at.tok_s)} tok/s needs an accept"
            f" length of at least {number(least)}"
        )
    if at.allreduce_ms > at.verify_ms * (1 + TOLERANCE):
        yield (
            f"all-reduces take {number(at.allreduce_ms)} ms of a verify of"
            f" {number(at.verify_ms)} ms: more than the whole"
        )


def _decode(at: Situation) -> Iterator[str]:
    """Yield a plain forward that is longer than the plain step it belongs to."""
    if at.decode_ms > at.ms_per_token * (1 + TOLERANCE):
        yield (
            f"decode_ms {number(at.decode_ms)} exceeds a plain step's whole"
            f" {number(at.ms_per_token)} ms"
        )


def _allreduce(at: Situation) -> Iterator[str]:
    """Yield an all-reduce that is far dearer than any published one of its size."""
    if math.isnan(at.allreduce_ms) or not at.allreduces:
        return
    each = 1000 * at.allreduce_ms / at.allreduces
    low, high = public_floor_us(at)
    if each <= FAR * high:
        return
    kib = at.message_kib
    size = f"at {number(kib)} KiB" if kib == kib else "between 4 and 256 KiB"
    yield (
        f"{number(each)} µs an all-reduce is {number(each / high)} to {number(each / low)} times"
        f" what NCCL needs {size} on 8 PCIe GPUs ({number(low)}–{number(high)} µs;"
        f" {NCCL_PCIE_8[0].source} and four more boxes). Most of it is not the wire: launches and"
        " ranks that wait for each other are counted inside the kernel, or peer access is off and"
        " the data go through host memory"
    )
    plain = 1000 * at.ms_per_token / at.allreduces
    if plain < each:
        yield (
            f"the same {at.allreduces:.0f} all-reduces fit into the baseline's"
            f" {number(at.ms_per_token)} ms step, so there each costs at most {number(plain)} µs"
            " with everything else counted as nothing"
        )


def public_floor_us(at: Situation) -> tuple[float, float]:
    """Return the public range of one all-reduce: at the message size, else at the usual ones."""
    if at.message_kib == at.message_kib:
        return floor_us(at.message_kib)
    ends = [floor_us(kib) for kib in TYPICAL_KIB]
    return min(low for low, _ in ends), max(high for _, high in ends)
