"""Write the tables of the report and of the terminal: speed, a step's parts, acceptance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pipeline.judge.comparison import Comparison, compare
from pipeline.measure import Figures, Measurement
from pipeline.measure.wording import (
    arm_names,
    comparison_names,
    grouped,
    number,
    percent,
    sentence,
    surplus,
    table,
    times,
    with_interval,
)
from pipeline.record.record import CellRecord
from pipeline.report.origin import drafter_notes
from pipeline.report.trust import interleaving
from pipeline.report.verdict import verdict

SPEED = (
    "cell",
    "tok/s (95 %)",
    "speed-up (95 %)",
    "accept length (95 %)",
    "break-even",
    "its floor (verify only)",
    "above break-even",
)
MOST = 6  # classes that a page is wide enough for


def speed_tables(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield one table per workload class, fastest cell first, then the one over all classes."""
    yield "## Speed by workload class"
    yield (
        "Break-even is the accept length at which the cell is as fast as the best baseline;"
        " its floor is what is left of it if drafter and host cost nothing."
    )
    cells = comparison.measurements.items()
    for category, prompts in _num_prompts(comparison).items():
        found = {key: m.classes[category] for key, m in cells if category in m.classes}
        yield f"### {category} ({prompts} prompt{'s' if prompts > 1 else ''})"
        yield table(SPEED, _speed_rows(found, comparison, names))
    yield "### All classes together"
    found = {key: m.overall for key, m in cells}
    yield table(SPEED, _speed_rows(found, comparison, names))
    yield (
        "Beside it: what a request sees, and accept length (AL) as other tools average it, where"
        " every request weighs the same, or as much as its tokens."
    )
    yield table(
        ("cell", "end to end tok/s", "first token, ms", "AL per request", "AL token-weighted"),
        [
            (
                names[key],
                *map(number, (f.end_to_end_tok_s, f.time_to_first_token_ms)),
                *map(number, (f.accept_length_per_request, f.accept_length_token_weighted)),
            )
            for key, f in found.items()
        ],
    )


def _num_prompts(comparison: Comparison) -> dict[str, int]:
    """Return how many prompts stand behind each class that has figures, in the workload's order."""
    counts: dict[str, int] = {}
    for measurement in comparison.measurements.values():
        for category, figures in measurement.classes.items():
            counts[category] = max(counts.get(category, 0), figures.num_prompts)
    return counts


def _speed_rows(
    found: Mapping[str, Figures], comparison: Comparison, names: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """Yield rows, fastest first, by speed-up: tok/s may be of other hours.

    Break-even says nothing of plain decode.
    """
    for key, figures in sorted(found.items(), key=lambda item: -rank(item[1])):
        row = [_marked(key, comparison, names), with_interval(figures.tok_s)]
        row += [times(figures.versus.speed_up) if figures.versus else "–"]
        row += [with_interval(figures.accept_length)]
        if comparison.measurements[key].is_baseline or figures.versus is None:
            row += ["–"] * 3
        else:
            levers = figures.versus.levers
            row += [number(levers.break_even), number(levers.break_even_floor)]
            row += [f"{surplus(levers):+.2f}".replace("-", "−")]
        yield tuple(row)


def rank(figures: Figures) -> float:
    """Return what a cell is ranked by: its speed-up, or tok/s where there is no baseline."""
    return figures.speed_up if figures.versus else figures.tok_s.value


def step_table(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield where a step's time goes."""
    yield "## Where a step's time goes"
    yield "Mean ms per step over all classes, and the step time that would break even."
    yield table(
        ("cell", "step", "verify (plain: decode)", "draft", "host", "would break even"),
        [
            (
                names[key],
                number((f := m.overall).step_ms),
                *(
                    f"{number(ms)} ({percent(ms / f.step_ms)})"
                    for ms in (f.verify_ms, f.draft_ms, f.host_ms)
                ),
                number(f.versus.levers.needed_step_ms) if f.versus and not m.is_baseline else "–",
            )
            for key, m in comparison.measurements.items()
        ],
    )


def accept_table(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield accept rate by draft position and the histogram of committed tokens."""
    drafted = {k: m for k, m in comparison.measurements.items() if not m.is_baseline}
    if not drafted:
        return
    widest = max(m.width for m in drafted.values())
    alike = grouped((tuple(_accept_rows(m, widest)), names[k]) for k, m in drafted.items())
    yield "## Accept rate by draft position"
    yield (
        "Of the steps that reached a position, the share that accepted its draft token;"
        " behind it the share of steps by tokens committed, and of steps with a draft."
    )
    positions = (str(i) for i in range(1, widest))
    head = ("class", *positions, f"steps committing 1…{widest}", "steps with a draft")
    for rows, cells in alike.items():
        yield f"{', '.join(cells)}:"
        yield table(head, rows)


def _accept_rows(measurement: Measurement, widest: int) -> Iterator[tuple[str, ...]]:
    """Yield one row per class, then one for all."""
    for category, figures in [*measurement.classes.items(), ("all", measurement.overall)]:
        rates = [percent(rate) for rate in figures.accept_rate]
        rates += ["–"] * (widest - 1 - len(rates))
        # Shares of the steps, for counts grow with the repetitions.
        shares = (percent(count / sum(figures.histogram)) for count in figures.histogram)
        yield (category, *rates, " / ".join(shares), percent(figures.draft_hit_rate))


def overview(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the table, fastest cell first and those without a result last, and how to read it."""
    counts = _num_prompts(comparison)
    classes = list(counts) if len(counts) <= MOST else []
    head = ("cell", *classes, "all (95 %)", "accept length", "break-even", "above it")
    batch = comparison.records[0].batch
    head += (f"running, of {batch}", "tok/s of all") if batch > 1 else ()
    cells = [(r, comparison.measurements.get(r.cell_id)) for r in comparison.records]
    cells.sort(key=lambda cell: -rank(cell[1].overall) if cell[1] else math.inf)
    rows = []
    for record, measured in cells:
        name = _marked(record.cell_id, comparison, names)
        if measured is None:
            name = f"{names[record.cell_id]} (**{record.status.value}**)"
        together = _together(record, measured) if batch > 1 else ()
        rows.append((name, *_speeds(measured, classes), *_needs(measured), *together))
    yield table(head, rows)
    yield _legend(comparison, counts, batch)
    if said := interleaving(comparison, names):
        yield said


def _marked(cell_id: str, comparison: Comparison, names: Mapping[str, str]) -> str:
    """Name a cell and say if it is the best baseline."""
    best = comparison.best is not None and comparison.best.cell_id == cell_id
    return f"{names[cell_id]} (best baseline)" if best else names[cell_id]


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


def _legend(comparison: Comparison, counts: Mapping[str, int], batch: int) -> str:
    """Say what the columns are, and how many prompts stand behind each class."""
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


def terminal_table(records: Sequence[CellRecord]) -> str:
    """Return, per comparison, one line a cell: tok/s and speed-up by class; then the verdict.

    `accept` is the accept length over all classes, `needed` the break-even that it must exceed.
    """
    comparisons = compare(records)
    titles = comparison_names([c.records for c in comparisons])
    blocks = []
    for title, comparison in zip(titles, comparisons, strict=True):
        names = arm_names(comparison.records)
        turns = filter(None, [interleaving(comparison, names)])
        plain = (line.replace("**", "") for line in verdict(comparison, names))
        blocks.append("\n".join([title, *_aligned(comparison, names), *turns, "", *plain]))
    if said := drafter_notes(records):
        blocks.append("\n".join(f"{sentence(note)}." for note in said))
    return "\n\n".join(blocks)


def _aligned(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield aligned lines for the terminal: a head, then the cells in their order."""
    classes = list(_num_prompts(comparison))
    rows = [["", *classes, "all", "accept", "needed"]]
    for record in comparison.records:
        rows.append([names[record.cell_id], *_row(record, comparison, classes)])
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    for row in rows:
        first, *rest = row
        cells = (text.rjust(width) for text, width in zip(rest, widths[1:], strict=False))
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def _row(record: CellRecord, comparison: Comparison, classes: Sequence[str]) -> list[str]:
    """Return a cell's figures, or how it ended."""
    measurement = comparison.measurements.get(record.cell_id)
    if measurement is None:
        return [record.status.value.upper()]
    row = []
    for figures in [*map(measurement.classes.get, classes), measurement.overall]:
        text = "–" if figures is None else number(figures.tok_s.value)
        if figures and figures.versus:
            text += f" {figures.versus.speed_up.value:.2f}x"
        row.append(text)
    return [*row, *_needs(measurement)[:2]]
