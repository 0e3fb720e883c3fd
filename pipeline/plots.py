"""The report's four plots: readable in grey, labelled where the marks are, a laptop wide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.judge import Comparison
from pipeline.measure import Figures, Levers, Measurement
from pipeline.report.text import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, chosen so that neighbours also differ in grey: dark, middle, light.
DARK, MIDDLE, LIGHT, INK, FAINT = "#0072B2", "#E69F00", "#C9C9C9", "#222222", "#8A8A8A"
LINES, MARKERS = (DARK, MIDDLE, INK, FAINT), "osD^vP"
SMALL, TITLE = 9, 10  # points
LABEL_ROOM = 1.45  # an axis reaches so far beyond its last mark
WIDTH, ROW, HEAD = 9.0, 0.3, 0.75  # inches: page, one cell, a panel's title and axis
Cells = Sequence[tuple[str, Measurement]]


def draw(
    comparison: Comparison, names: Mapping[str, str], folder: Path, prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Write the plots that the cells allow, and yield each one's file name and caption.

    Args:
        comparison: The judged cells; without any measurement nothing is drawn.
        names: Each cell's name by its id.
        folder: Where the files go; made if it is missing.
        prefix: Before each file's name, to tell comparisons apart.
    """
    cells = [(names[key], m) for key, m in comparison.measurements.items()]
    drafted = [(name, m) for name, m in cells if not m.is_baseline]
    plots: list[tuple[str, str, Cells, Callable[[Cells], Figure]]] = [
        ("speed", "Decode tok/s beside the best baseline, by class", cells, speed),
        ("break_even", "Accept length beside break-even, by class", _versus(drafted), break_even),
        ("step", "Where a step's time goes", cells, step),
        ("accept_rate", "Accept rate by draft position", _distinct(drafted), accept_rate),
    ]
    for name, caption, shown, plot in plots:
        if shown:
            folder.mkdir(parents=True, exist_ok=True)
            plot(shown).savefig(folder / f"{prefix}{name}.png", dpi=110)
            yield f"{prefix}{name}.png", caption


def _versus(cells: Cells) -> Cells:
    """Return the cells that have a baseline to compare with."""
    return [(name, m) for name, m in cells if m.overall.versus]


def _distinct(cells: Cells) -> Cells:
    """Return one cell of those that accepted alike, as a drafter does on lossless backends."""
    return list({m.overall.histogram: (name, m) for name, m in reversed(cells)}.values())[::-1]


def speed(cells: Cells) -> Figure:
    """Draw tok/s with its interval, one panel per class, the best baseline as a line."""
    figure, panels = _class_panels(cells, len(cells))
    for category, axes in panels.items():
        shown = [(name, m.classes.get(category)) for name, m in cells]
        for row, (_, figures) in enumerate(shown):
            if figures:
                _speed_row(axes, row, figures)
        versus = next((f.versus for _, f in shown if f and f.versus), None)
        if versus:
            axes.axvline(versus.baseline_tok_s, color=FAINT, linewidth=1, zorder=0)
        _rows(axes, [name for name, _ in shown], category)
        highest = max(max(f.tok_s.value, f.tok_s.high) for _, f in shown if f)
        axes.set_xlim(0, LABEL_ROOM * highest)
    figure.supxlabel(
        "decode tok/s with 95 % interval · times the best baseline (line); dark: faster than it",
        fontsize=SMALL,
    )
    return figure


def _speed_row(axes: Axes, row: int, figures: Figures) -> None:
    """Draw one cell's bar, interval and label."""
    rate, versus = figures.tok_s, figures.versus
    gains = versus is not None and versus.speed_up.low > 1
    axes.barh(row, rate.value, height=0.55, color=DARK if gains else LIGHT)
    axes.plot([rate.low, rate.high], [row, row], color=INK, linewidth=1.2)
    text = number(rate.value) + (f" · {versus.speed_up.value:.2f}x" if versus else "")
    _label(axes, text, max(rate.value, rate.high), row)


def break_even(cells: Cells) -> Figure:
    """Draw accept length (dot) beside break-even (bar) and its floor (thin bar), per class."""
    figure, panels = _class_panels(cells, len(cells))
    for category, axes in panels.items():
        shown = [(name, m.classes.get(category)) for name, m in cells]
        levers = [f.versus.levers if f and f.versus else None for _, f in shown]
        for row, found in enumerate(levers):
            if found:
                _break_even_row(axes, row, found)
        _rows(axes, [name for name, _ in shown], category)
        highest = max(max(x.accept_length, x.break_even) for x in levers if x)
        axes.set_xlim(0.8, 0.8 + LABEL_ROOM * (highest - 0.8))
    figure.supxlabel(
        "accept length (dot) of break-even (thick bar; thin: its floor, verify only);"
        " dark dot: above",
        fontsize=SMALL,
    )
    return figure


def _break_even_row(axes: Axes, row: int, levers: Levers) -> None:
    """Draw one cell's accept length, break-even and what lies between."""
    length, needed = levers.accept_length, levers.break_even
    color = DARK if length >= needed else MIDDLE
    axes.plot([length, needed], [row, row], color=color, linewidth=3, alpha=0.6)
    axes.plot(levers.break_even_floor, row, "|", color=FAINT, markersize=9)
    axes.plot(needed, row, "|", color=INK, markersize=15, markeredgewidth=2.5)
    axes.plot(length, row, "o", color=color, markeredgecolor=INK, markersize=7)
    _label(axes, f"{length:.2f} of {needed:.2f}", max(length, needed), row, 9)


def step(cells: Cells) -> Figure:
    """Draw each cell's step, stacked into verify, draft and host, and what would break even."""
    figure, (axes,) = _grid(1, HEAD + ROW * len(cells))
    right = max(_step_row(axes, row, m) for row, (_, m) in enumerate(cells))
    _rows(axes, [name for name, _ in cells], "ms per step, all classes")
    axes.set_xlim(0, LABEL_ROOM * right)
    axes.legend(ncols=4, loc="lower right", bbox_to_anchor=(1, 1), frameon=False, fontsize=SMALL)
    return figure


def _step_row(axes: Axes, row: int, measurement: Measurement) -> float:
    """Draw one cell's stack and its label, and return where its marks end."""
    figures, right = measurement.overall, 0.0
    for name, color in (("verify", DARK), ("draft", MIDDLE), ("host", LIGHT)):
        value = max(getattr(figures, f"{name}_ms"), 0.0)
        axes.barh(row, value, 0.55, right, color=color, label=None if row else name)
        right += value
    text = f"{number(figures.step_ms)} ms"
    if figures.versus and not measurement.is_baseline:
        needed = figures.versus.levers.needed_step_ms
        axes.plot(needed, row, "|", color="white", markersize=19, markeredgewidth=5)
        axes.plot(needed, row, "|", color=INK, markersize=17, markeredgewidth=2.5)
        text += f", {number(needed)} would break even"
        right = max(right, needed)
    _label(axes, text, right, row)
    return right


def accept_rate(cells: Cells) -> Figure:
    """Draw the accept rate by draft position, one panel per drafter, one line per class."""
    figure, panels = _grid(len(cells), 2.6)
    for (name, measurement), axes in zip(cells, panels, strict=True):
        last = measurement.width - 1
        rates = {c: f.accept_rate for c, f in measurement.classes.items()}
        for index, shares in enumerate(rates.values()):
            color, marker = LINES[index % len(LINES)], MARKERS[index % len(MARKERS)]
            axes.plot(range(1, last + 1), shares, color=color, marker=marker)
        ends = {c: (shares[-1] if shares[-1] == shares[-1] else 0.0) for c, shares in rates.items()}
        for category, height in _apart(ends, 0.085).items():
            _label(axes, category, last, height, 8)
        axes.set_title(name, loc="left", fontsize=TITLE)
        axes.set_xticks(range(1, last + 1))
        axes.set_xlim(0.8, last + 0.25 * max(last, 2))
        axes.set_ylim(0, 1)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("draft position: share accepted of the steps that reached it", fontsize=SMALL)
    return figure


def _apart(heights: Mapping[str, float], gap: float) -> dict[str, float]:
    """Return label heights that keep their order and stand at least `gap` apart."""
    placed = dict(sorted(heights.items(), key=lambda item: item[1]))
    for below, above in pairwise(list(placed)):
        placed[above] = max(placed[above], placed[below] + gap)
    return placed


def _label(axes: Axes, text: str, x: float, y: float, gap: int = 5) -> None:
    """Write right of a mark, over whatever line crosses there."""
    box = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85}
    axes.annotate(
        text,
        (x, y),
        (gap, 0),
        textcoords="offset points",
        va="center",
        color=INK,
        fontsize=SMALL,
        bbox=box,
    )


def _class_panels(cells: Cells, rows: int) -> tuple[Figure, dict[str, Axes]]:
    """Return a figure with one panel per workload class."""
    categories = list(dict.fromkeys(c for _, m in cells for c in m.classes))
    figure, panels = _grid(len(categories), HEAD + ROW * rows)
    return figure, dict(zip(categories, panels, strict=True))


def _grid(panels: int, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels in at most two columns, each `height` inches high.

    The drawing library is loaded here, for it takes a second that most commands do not need.
    """
    from matplotlib.figure import Figure

    columns = min(2, panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(WIDTH, height * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for spare in grid[panels:]:
        spare.set_visible(False)
    return figure, list(grid[:panels])


def _rows(axes: Axes, names: Sequence[str], title: str) -> None:
    """Name the rows of a panel in the first column, first on top, and clear what is not data."""
    place = axes.get_subplotspec()
    first = place is not None and place.is_first_col()
    axes.set_yticks(range(len(names)), names if first else [""] * len(names), fontsize=SMALL)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_title(title, loc="left", fontsize=TITLE, fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.spines[["top", "right", "left"]].set_visible(False)
