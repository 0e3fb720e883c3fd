"""The verdict of a sweep that lacks what a speed-up needs: a baseline, a drafter, any result."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures
from pipeline.measure.wording import number, times, with_interval
from pipeline.record.record import Status


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
