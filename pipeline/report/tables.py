"""Write the report's tables: overview, speed by class, a step's parts, acceptance by position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures, Measurement
from pipeline.measure.wording import number, percent, surplus, table, times, with_interval
from pipeline.record.record import CellRecord
from pipeline.report.caveats import interleaving

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
    for category in categories(comparison):
        found = {
            key: m.classes[category]
            for key, m in comparison.measurements.items()
            if category in m.classes
        }
        prompts = max(figures.num_prompts for figures in found.values())
        yield f"### {category} ({prompts} prompt{'s' if prompts > 1 else ''})"
        yield table(SPEED, _speed_rows(found, comparison, names))
    yield "### All classes together"
    found = {key: m.overall for key, m in comparison.measurements.items()}
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
                number(f.end_to_end_tok_s),
                number(f.time_to_first_token_ms),
                number(f.accept_length_per_request),
                number(f.accept_length_token_weighted),
            )
            for key, f in found.items()
        ],
    )


def categories(comparison: Comparison) -> list[str]:
    """Return the workload's classes that have figures, in its order."""
    found = (name for m in comparison.measurements.values() for name in m.classes)
    return list(dict.fromkeys(found))


def _speed_rows(
    found: Mapping[str, Figures], comparison: Comparison, names: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    """Yield rows, fastest first, by speed-up: tok/s may be of other hours.

    Break-even says nothing of plain decode.
    """
    for key, figures in sorted(found.items(), key=lambda item: -rank(item[1])):
        best = comparison.best is not None and comparison.best.cell_id == key
        row = [f"{names[key]} (best baseline)" if best else names[key]]
        row += [with_interval(figures.tok_s)]
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
                number(f.step_ms),
                f"{number(f.verify_ms)} ({percent(f.verify_ms / f.step_ms)})",
                f"{number(f.draft_ms)} ({percent(f.draft_ms / f.step_ms)})",
                f"{number(f.host_ms)} ({percent(f.host_ms / f.step_ms)})",
                number(f.versus.levers.needed_step_ms) if f.versus and not plain else "–",
            )
            for key, f, plain in (
                (key, m.overall, m.is_baseline) for key, m in comparison.measurements.items()
            )
        ],
    )


def accept_table(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield accept rate by draft position and the histogram of committed tokens."""
    drafted = {k: m for k, m in comparison.measurements.items() if not m.is_baseline}
    if not drafted:
        return
    widest = max(m.width for m in drafted.values())
    alike: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for key, measurement in drafted.items():
        alike.setdefault(tuple(_accept_rows(measurement, widest)), []).append(names[key])
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
        yield (
            category,
            *rates,
            *["–"] * (widest - 1 - len(rates)),
            " / ".join(_shares(figures.histogram)),
            percent(figures.draft_hit_rate),
        )


def _shares(histogram: Sequence[int]) -> Iterator[str]:
    """Yield what share of the steps each count is: counts grow with the repetitions."""
    steps = sum(histogram)
    for count in histogram:
        yield percent(count / steps)


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
    if said := interleaving(comparison, names):
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
