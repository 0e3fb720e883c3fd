"""The words and tables that the terminal and a pull request's comment share."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pipeline.gate.arm import Arm
from pipeline.gate.figures import PER_TOKEN, VERIFY, Pick, typical
from pipeline.gate.outcome import Answer, Outcome
from pipeline.measure.wording import number

TIMED_HEAD = ("timed", "reference", "candidate", "slower by", "proven", "ruled out", "power", "")
CELL_HEAD = ("cell", "accept length", "verify or decode ms", "draft ms", "host ms", "ms per token")


def headline(outcome: Outcome) -> str:
    """Return the verdict in a line."""
    reasons = {
        Answer.PASS: "nothing exact changed, and no slow-down of"
        f" {outcome.promise.min_effect:.1%} is left possible",
        Answer.REGRESSION: _regression(outcome),
        Answer.NOT_COMPARABLE: f"{len(outcome.differences)} differences",
        Answer.UNDECIDED: "the noise was too large to tell",
    }
    return f"{str(outcome.answer).upper()}: {reasons[outcome.answer]}"


def _regression(outcome: Outcome) -> str:
    """Name what is worse: exact things, then the timed metric that is slowest."""
    parts = [f"{f.kind} of {f.place}" for f in outcome.findings if f.fails][:1]
    more = sum(f.fails for f in outcome.findings) - 1
    if more > 0:
        parts.append(f"{more} more findings")
    slow = [t for t in outcome.timed if t.verdict == "regression"]
    if slow:
        worst = max(slow, key=lambda t: t.slow_down)
        parts.append(f"{worst.name} is {worst.slow_down:.1%} slower")
    return "; ".join(parts)


def promised(outcome: Outcome) -> str:
    """Return what was declared, and what was measured for it."""
    promise = outcome.promise
    return (
        f"{outcome.measured}; declared: {promise.alpha:.1%} false alarms over all timed metrics,"
        f" {promise.power:.0%} of slow-downs of {promise.min_effect:.1%} do not pass"
    )


def timed_rows(outcome: Outcome) -> Iterator[list[str]]:
    """Yield a row per timed metric; slow-downs are percent of the reference's time."""
    for t in outcome.timed:
        proven = f"≥ {_share(t.at_least)}" if math.isfinite(t.at_least) else "–"
        ruled = f"> {_share(t.at_most)}" if math.isfinite(t.at_most) else "–"
        times = (number(t.reference), number(t.candidate), _share(t.slow_down))
        yield [t.name, *times, proven, ruled, t.power, t.verdict]


def cell_rows(outcome: Outcome) -> Iterator[list[str]]:
    """Yield a row per cell: the reference's figures, then the candidate's where they differ."""
    for ours, theirs in outcome.arms:
        lengths = _change(f"{theirs.accept_length:.4f}", f"{ours.accept_length:.4f}")
        yield [ours.label, lengths, *(_both(ours, theirs, pick) for pick in SPLIT)]


SPLIT: tuple[Pick, ...] = (
    VERIFY,
    lambda t: t.draft_ms,
    lambda t: t.host_ms,
    PER_TOKEN,
)


def _both(ours: Arm, theirs: Arm, pick: Pick) -> str:
    return _change(number(typical(theirs, pick)), number(typical(ours, pick)))


def _change(was: str, now: str) -> str:
    return was if was == now else f"{was} → {now}"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.1%}"
