"""The report's main table: a line a cell, its speed by class, and what break-even asks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures, Measurement
from pipeline.measure.wording import number, surplus, table, times
from pipeline.record.record import CellRecord
from pipeline.report.tables import categories, rank
from pipeline.report.turns import turns

MOST = 6  # classes that a page is wide enough for


def overview(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the table, fastest cell first and those without a result last, and how to read it."""
    classes = categories(comparison)
    if len(classes) > MOST:
        classes = []
    head = ("cell", *classes, "all (95 %)", "accept length", "break-even", "above it")
    batch = comparison.records[0].batch
    head += (f"running, of {batch}", "tok/s of all") if batch > 1 else ()
    found = comparison.measurements
    ordered = sorted(comparison.records, key=lambda r: _place(found.get(r.cell_id)))
    rows = []
    for record in ordered:
        row = [_name(record, comparison, names), *_speeds(found.get(record.cell_id), classes)]
        together = _together(record, found.get(record.cell_id)) if batch > 1 else ()
        rows.append((*row, *_needs(found.get(record.cell_id)), *together))
    yield table(head, rows)
    yield _legend(comparison, batch)
    if said := turns(comparison, names):
        yield said


def _place(measurement: Measurement | None) -> tuple[bool, float]:
    """Return what rows are sorted by."""
    return (False, -rank(measurement.overall)) if measurement else (True, 0.0)


def _name(record: CellRecord, comparison: Comparison, names: Mapping[str, str]) -> str:
    """Name a cell and say if it is the best baseline, or how it ended without a result."""
    name = names[record.cell_id]
    if record.cell_id not in comparison.measurements:
        return f"{name} (**{record.status.value}**)"
    best = comparison.best is not None and comparison.best.cell_id == record.cell_id
    return f"{name} (best baseline)" if best else name


def _speeds(measurement: Measurement | None, classes: list[str]) -> Iterator[str]:
    """Yield a cell's speed on each class and on all of them."""
    for category in classes:
        figures = measurement.classes.get(category) if measurement else None
        yield _speed(figures, f"{figures.speed_up:.2f}x" if figures else "")
    overall = measurement.overall if measurement else None
    found = overall.versus.speed_up if overall and overall.versus else None
    itself = found is not None and found.low == found.high  # the best baseline beside itself
    yield _speed(overall, "1.00x" if itself else times(found) if found else "")


def _speed(figures: Figures | None, speed_up: str) -> str:
    """Write tok/s and the times the best baseline, bold where that is shown to be above 1."""
    if figures is None:
        return "–"
    if figures.versus is None:
        return number(figures.tok_s.value)
    text = f"{number(figures.tok_s.value)} {speed_up}"
    return f"**{text}**" if figures.versus.speed_up.low > 1 else text


def _needs(measurement: Measurement | None) -> tuple[str, str, str]:
    """Return accept length, break-even and what lies between; plain decode has no break-even."""
    if measurement is None:
        return ("–",) * 3
    figures = measurement.overall
    length = f"{figures.accept_length.value:.2f}"
    if measurement.is_baseline or figures.versus is None:
        return (length, "–", "–")
    levers = figures.versus.levers
    return (length, f"{levers.break_even:.2f}", f"{surplus(levers):+.2f}".replace("-", "−"))


def _together(record: CellRecord, measurement: Measurement | None) -> tuple[str, str]:
    """Write how many requests ran in a step on average, and tok/s over all of them."""
    running = record.proof.running_requests if record.proof else 0.0
    if not running or measurement is None:
        return ("–", "–")
    return (number(running), number(running * measurement.overall.tok_s.value))


def _legend(comparison: Comparison, batch: int) -> str:
    """Say what the columns are, and how many prompts stand behind them."""
    counts = {
        category: max(
            m.classes[category].num_prompts
            for m in comparison.measurements.values()
            if category in m.classes
        )
        for category in categories(comparison)
    }
    prompts = ", ".join(f"{category} {count}" for category, count in counts.items())
    text = "Decode tok/s" + " of one request" * (batch > 1)
    if comparison.best is not None:
        text += " and times the best baseline, bold where shown to be faster"
    text += (
        f"; prompts: {prompts}. Break-even: the accept length at which a cell is as fast as the"
        " best baseline, draft and host time included."
    )
    if batch > 1:
        text += " Running: requests in a step, a mean over them; times it, tok/s of all."
    return text
