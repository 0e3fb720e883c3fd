"""The verdict: three lines of words and numbers, which lever closes the gap, which one moved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures
from pipeline.measure.wording import number, percent, surplus, times, with_interval
from pipeline.record.record import Status
from pipeline.report.trust import caveats
from pipeline.roi.text import next_step
from pipeline.roi.verdict import ClassVerdict, class_verdicts, furthest

TOLD = 6  # classes that a line tells one by one
ALIKE = 1.1  # two factors that are no further apart are called alike
VERIFY, DRAFTER = "verify", "drafter"
WORDS = {VERIFY: "the verify step", DRAFTER: "the drafter"}


def verdict(comparison: Comparison, names: Mapping[str, str]) -> list[str]:
    """Return three lines: where speculation pays, where it does not and by how much, what next.

    A fourth says which lever moved speed in this grid, if any was varied beside a drafter.

    Args:
        comparison: The judged cells.
        names: Each cell's name by its id.
    """
    if not comparison.measurements:
        return nothing(comparison, names)
    if comparison.best is None or comparison.best.cell_id not in comparison.measurements:
        return no_baseline(comparison, names)
    plain = comparison.measurements[comparison.best.cell_id].overall
    best = (
        f"the best baseline ({names[comparison.best.cell_id]}, {number(plain.tok_s.value)} tok/s)"
    )
    contenders = class_verdicts(comparison, names)
    if not contenders:
        return plain_only(comparison, names, plain)
    lines = [
        _gains(contenders, best) + caveats(comparison, names),
        _gaps(contenders),
        _next(contenders),
    ]
    return [*lines, *filter(None, [moved(comparison, names)])]


def _gains(contenders: list[ClassVerdict], best: str) -> str:
    """Say where speculation pays."""
    gains = sorted((c for c in contenders if c.shown), key=lambda c: -c.speed_up.value)
    if not gains:
        top = max(contenders, key=lambda c: c.speed_up.value)
        return (
            f"**On no class is a drafter shown to beat {best}**; the closest is {top.name} on"
            f" {top.category}, {times(top.speed_up)}."
        )
    first, *others = gains[:TOLD]
    text = f"**On {first.category}, {first.name} is {times(first.speed_up)} {best}.**"
    for other in others:
        who = "it is" if other.name == first.name else f"{other.name} is"
        text += f" On {other.category} {who} {times(other.speed_up)}."
    return text + _more(gains, "gains")


def _gaps(contenders: list[ClassVerdict]) -> str:
    """Say where it does not pay, and how far accept length is from break-even."""
    short = sorted((c for c in contenders if not c.shown), key=lambda c: c.speed_up.value)
    if not short:
        return "Every class gains: accept length is above break-even on all of them."
    told = "; ".join(_gap(c) for c in short[:TOLD])
    return f"**Not shown to gain, at best:** {told}.{_more(short, 'is not shown to gain')}"


def _more(contenders: list[ClassVerdict], what: str) -> str:
    """Name the classes that are not told one by one, "" where all are."""
    rest = [c.category for c in contenders[TOLD:]]
    return f" A drafter {what} on {len(rest)} more: {', '.join(rest)}." if rest else ""


def _gap(contender: ClassVerdict) -> str:
    """Say one class's shortfall."""
    levers = contender.levers
    above = surplus(levers)
    short = f"{-above:.2f} short" if above < 0 else f"{above:.2f} above"
    undecided = ", undecided," if not contender.decided else ""
    return (
        f"{contender.category} {times(contender.speed_up)}{undecided} with"
        f" {contender.name} (accept length {levers.accept_length:.2f}, break-even"
        f" {levers.break_even:.2f}, {short})"
    )


def _next(contenders: list[ClassVerdict]) -> str:
    """Say what to invest in, for the class that is furthest from break-even."""
    worst = furthest(contenders)
    levers = worst.levers
    limits = (
        f"a verify step as cheap as plain decode would give {number(levers.limit_of_verify)}x,"
        f" drafting and host work for nothing {number(levers.limit_of_overhead)}x, a drafter that"
        f" is always right {number(levers.limit_of_drafter)}x"
    )
    if levers.accept_length >= levers.break_even:
        return (
            f"**Next, on {worst.category}:** {next_step(worst.verdict)} No class is below"
            f" break-even.{_more_prompts(contenders)} At most, {limits}."
        )
    cut = 1 - levers.needed_step_ms / levers.step_ms
    rise = levers.break_even / levers.accept_length - 1
    return (
        f"**Next, on {worst.category}:** {next_step(worst.verdict)} To break even, cut the step"
        f" from {number(levers.step_ms)} to {number(levers.needed_step_ms)} ms (−{percent(cut)}) at"
        f" this accept length, or raise accept length from {levers.accept_length:.2f} to"
        f" {levers.break_even:.2f} (+{percent(rise)}) at this step cost. At most, {limits}."
        f"{_more_prompts(contenders)}"
    )


def _more_prompts(contenders: list[ClassVerdict]) -> str:
    """Say on which classes more prompts would decide."""
    undecided = [c.category for c in contenders if not c.decided]
    return f" More prompts would decide on {', '.join(undecided)}." if undecided else ""


def plain_only(comparison: Comparison, names: Mapping[str, str], plain: Figures) -> list[str]:
    """Say what plain decoding does when no drafter gave a result."""
    best = comparison.best
    others = [
        f"{names[key]} is {times(m.overall.versus.speed_up)}"
        for key, m in comparison.measurements.items()
        if m.overall.versus and best and key != best.cell_id
    ]
    return [
        f"**Plain decode only:** the fastest is {names[best.cell_id] if best else '?'} with"
        f" {with_interval(plain.tok_s)} tok/s; no cell with a drafter gave a result.",
        f"Beside it, {'; '.join(others)}." if others else "It is the only cell with a result.",
        "**Next:** add a drafter; it pays once its accept length exceeds its step time over"
        f" {number(1000 / plain.tok_s.value)} ms, which is what a token costs now.",
    ]


def no_baseline(comparison: Comparison, names: Mapping[str, str]) -> list[str]:
    """Say what was measured when there is nothing to compare with."""
    cell_id, fastest = max(
        comparison.measurements.items(), key=lambda item: item[1].overall.tok_s.value
    )
    figures = fastest.overall
    return [
        "**There is no baseline:** no cell with drafter `none` gave a result, so no speed-up and no"
        " break-even can be stated.",
        f"The fastest cell is {names[cell_id]} with {with_interval(figures.tok_s)} tok/s at accept"
        f" length {with_interval(figures.accept_length)}.",
        "**Next:** run the same grid with drafter=none as well.",
    ]


def nothing(comparison: Comparison, names: Mapping[str, str]) -> list[str]:
    """Say why no cell gave a result."""
    ends = [r.status.value for r in comparison.records]
    counts = ", ".join(f"{ends.count(s)} {s.value}" for s in Status if s.value in ends)
    first = comparison.records[0]
    reason = first.reason or "no reason was recorded"
    return [
        f"**No cell gave a result:** {counts}.",
        f"The first, {names[first.cell_id]}, is {first.status.value}: {reason}.",
        "**Next:** the reasons are listed below; nothing can be concluded about speed.",
    ]


class Exchange(NamedTuple):
    """The fastest drafted cell beside the slowest that differs from it in one lever only.

    Attributes:
        lever: What differs.
        before: The slowest cell's name.
        slow: Its figures over all classes.
        after: The fastest drafted cell's name.
        fast: Its figures.
    """

    lever: str
    before: str
    slow: Figures
    after: str
    fast: Figures

    @property
    def factor(self) -> float:
        """How many times as fast the exchange made it, each beside its own baseline."""
        return self.fast.speed_up / self.slow.speed_up


def moved(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say what exchanging each lever of the fastest drafted cell did, "" where one was not varied.

    The larger factor comes first. A drafter's exchange may be with plain decoding.
    """
    found = [e for lever in (VERIFY, DRAFTER) if (e := _exchange(comparison, names, lever))]
    if len(found) < 2:
        return ""
    most, least = sorted(found, key=lambda exchange: -exchange.factor)
    heading = f"Here {WORDS[most.lever]} moved speed more than {WORDS[least.lever]}:"
    if most.factor < ALIKE * least.factor:
        heading = "The verify step and the drafter moved speed alike here:"
    return f"**{heading}** over all classes, {_told(most)}; {_told(least)}."


def _exchange(comparison: Comparison, names: Mapping[str, str], lever: str) -> Exchange | None:
    """Return the exchange of one lever; None without another cell that shares all the rest."""
    params = {r.cell_id: r.params for r in comparison.records}
    figures = {k: m.overall for k, m in comparison.measurements.items() if m.overall.versus}
    drafted = [k for k in figures if not comparison.measurements[k].is_baseline]
    if not drafted:
        return None
    best = max(drafted, key=lambda key: figures[key].speed_up)
    kept = DRAFTER if lever == VERIFY else VERIFY
    others = [
        key for key in figures if key != best and _of(params[key], kept) == _of(params[best], kept)
    ]
    if not others:
        return None
    worst = min(others, key=lambda key: figures[key].speed_up)
    return Exchange(lever, names[worst], figures[worst], names[best], figures[best])


def _of(params: Mapping[str, str], lever: str) -> dict[str, str]:
    """Return the settings of one lever."""
    return {key: value for key, value in params.items() if key.split(".")[0] == lever}


def _told(exchange: Exchange) -> str:
    """Say what one exchange did, and what changed in a step."""
    slow, fast = exchange.slow, exchange.fast
    length = _from_to(slow.accept_length.value, fast.accept_length.value)
    cost = _from_to(*(f.versus.levers.break_even for f in (slow, fast) if f.versus))
    return (
        f"{exchange.after} instead of {exchange.before} is {number(exchange.factor)} times as fast"
        f" ({slow.speed_up:.2f}x → {fast.speed_up:.2f}x the best baseline: a step commits"
        f" {length} tokens and costs the time of {cost} plain ones)"
    )


def _from_to(before: float, after: float) -> str:
    """Write a change, or that there is none."""
    if f"{before:.2f}" == f"{after:.2f}":
        return f"still {after:.2f}"
    return f"{before:.2f} → {after:.2f}"
