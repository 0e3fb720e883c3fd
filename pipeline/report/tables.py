"""The tables behind the main one: speed by class, a step's parts, acceptance by position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures, Measurement
from pipeline.measure.wording import number, percent, surplus, table, times, with_interval

SPEED = (
    "cell",
    "tok/s (95 %)",
    "speed-up (95 %)",
    "accept length (95 %)",
    "break-even",
    "its floor (verify only)",
    "above break-even",
)


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
