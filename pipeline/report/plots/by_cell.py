"""The plots with a row or a line per cell: speed, break-even, a step's parts, accept rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures, Levers, Measurement
from pipeline.measure.wording import clipped, grouped, number, percent
from pipeline.report.plots import panels
from pipeline.report.plots.panels import DARK, FAINT, INK, LIGHT, MIDDLE, SMALL, Cells, grid, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDEST = 60  # characters of a panel's title
LINES, MARKERS = (DARK, MIDDLE, INK, FAINT), "osD^vP"


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
    compared = [(name, m) for name, m in drafted if m.overall.versus]
    plots: list[tuple[Callable[[Cells], Figure], str, Cells]] = [
        (speed, "Decode tok/s beside the best baseline, by class", cells),
        (break_even, "Accept length beside break-even, by class", compared),
        (step, "Where a step's time goes", cells),
        (accept_rate, "Accept rate by draft position", distinct(drafted)),
    ]
    for plot, caption, shown in plots:
        if shown:
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{prefix}{plot.__name__}.png"
            plot(shown).savefig(folder / name, dpi=panels.DPI)
            yield name, caption


def distinct(cells: Cells) -> Cells:
    """Return one cell of those that accepted alike, as a drafter does on lossless backends.

    Its name says how many more it stands for. Cells may have repeated another number of times, so
    rates are compared, not counts.
    """
    alike = grouped((acceptance(measurement), (name, measurement)) for name, measurement in cells)
    return [
        (f"{name} and {len(others)} alike" if others else name, measurement)
        for (name, measurement), *others in alike.values()
    ]


def acceptance(measurement: Measurement) -> tuple[str, ...]:
    """Return what two cells that accept alike have in common: accept rates by class, as written."""
    classes = measurement.classes.items()
    return tuple(f"{name} {percent(rate)}" for name, f in classes for rate in f.accept_rate)


def speed(cells: Cells) -> Figure:
    """Draw tok/s with its interval, one panel per class, beside the best baseline.

    The baseline is marked row by row: where it ran again beside later cells, each row shows what
    its own speed-up is against. The marks join to one line where all cells took turns.
    """
    return _by_class(
        cells,
        _speed_row,
        0.0,
        "decode tok/s with 95 % interval · times the best baseline in the cell's own turns (line);"
        " dark: shown to be faster",
    )


def _speed_row(axes: Axes, row: int, figures: Figures) -> float:
    """Draw one cell's bar, interval and label, and return where its marks end."""
    rate, versus = figures.tok_s, figures.versus
    gains = versus is not None and versus.speed_up.low > 1
    axes.barh(row, rate.value, height=0.55, color=DARK if gains else LIGHT)
    axes.plot([rate.low, rate.high], [row, row], color=INK, linewidth=1.2)
    if versus:
        at = versus.baseline_tok_s
        axes.plot([at, at], [row - 0.5, row + 0.5], color=FAINT, linewidth=1, zorder=0)
    text = number(rate.value) + (f" · {versus.speed_up.value:.2f}x" if versus else "")
    right = max(rate.value, rate.high)
    label(axes, text, right, row)
    return right


def break_even(cells: Cells) -> Figure:
    """Draw accept length (dot) beside break-even (bar) and its floor (thin bar), per class."""
    return _by_class(
        cells,
        lambda axes, row, f: _break_even_row(axes, row, f.versus.levers) if f.versus else 0.0,
        0.8,
        "accept length (dot) beside break-even, which it must exceed to pay (thick bar;"
        " thin: if drafter and host cost nothing); dark: it does",
    )


def _break_even_row(axes: Axes, row: int, levers: Levers) -> float:
    """Draw one cell's accept length, break-even and what lies between; return where they end."""
    length, needed = levers.accept_length, levers.break_even
    color = DARK if length >= needed else MIDDLE
    axes.plot([length, needed], [row, row], color=color, linewidth=3, alpha=0.6)
    axes.plot(levers.break_even_floor, row, "|", color=FAINT, markersize=9)
    axes.plot(needed, row, "|", color=INK, markersize=15, markeredgewidth=2.5)
    axes.plot(length, row, "o", color=color, markeredgecolor=INK, markersize=7)
    label(axes, f"{length:.2f} of {needed:.2f}", max(length, needed), row, 9)
    return max(length, needed)


def _by_class(
    cells: Cells, draw_row: Callable[[Axes, int, Figures], float], left: float, what: str
) -> Figure:
    """Draw a panel per workload class with a row per cell that has figures on it.

    Args:
        cells: The rows.
        draw_row: Draws one row and returns where its marks end.
        left: Where the axis begins.
        what: The axis in words.
    """
    categories = list(dict.fromkeys(c for _, m in cells for c in m.classes))
    figure, drawn = grid(len(categories), panels.HEAD + panels.ROW * len(cells))
    for category, axes in zip(categories, drawn, strict=True):
        shown = [(row, m.classes.get(category)) for row, (_, m) in enumerate(cells)]
        right = max(draw_row(axes, row, figures) for row, figures in shown if figures)
        panels.rows(axes, [name for name, _ in cells], category)
        axes.set_xlim(left, left + panels.LABEL_ROOM * (right - left))
    figure.supxlabel(what, fontsize=SMALL)
    return figure


def step(cells: Cells) -> Figure:
    """Draw each cell's step, stacked into verify, draft and host, and what would break even."""
    figure, (axes,) = grid(1, panels.HEAD + panels.ROW * len(cells))
    right = max(_step_row(axes, row, m) for row, (_, m) in enumerate(cells))
    title = "ms per step, all classes (limit, thick bar: would break even)"
    panels.rows(axes, [name for name, _ in cells], title)
    axes.set_xlim(0, panels.LABEL_ROOM * right)
    figure.legend(ncols=4, loc="outside lower center", frameon=False, fontsize=SMALL)
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
        text += f", limit {number(needed)}"
        right = max(right, needed)
    label(axes, text, right, row)
    return right


def accept_rate(cells: Cells) -> Figure:
    """Draw the accept rate by draft position, one panel per drafter, one line per class."""
    figure, drawn = grid(len(cells), 2.6)
    for (name, measurement), axes in zip(cells, drawn, strict=True):
        last = measurement.width - 1
        rates = {c: f.accept_rate for c, f in measurement.classes.items()}
        for index, shares in enumerate(rates.values()):
            color, marker = LINES[index % len(LINES)], MARKERS[index % len(MARKERS)]
            axes.plot(range(1, last + 1), shares, color=color, marker=marker)
        ends = {category: _end(shares) for category, shares in rates.items()}
        heights = _spread({category: rate for category, (_, rate) in ends.items()}, 0.085)
        for category, height in heights.items():
            label(axes, category, ends[category][0], height, 8)
        axes.set_title(clipped(name, WIDEST), loc="left", fontsize=panels.TITLE)
        axes.set_xticks(range(1, last + 1))
        axes.set_xlim(0.8, last + 0.25 * max(last, 2))
        axes.set_yticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
        axes.set_ylim(0, max(1.05, *heights.values()) + 0.03)  # a label outside would be left out
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("draft position (of the steps that reached it)", fontsize=SMALL)
    figure.supylabel("accept rate", fontsize=SMALL)
    return figure


def _end(shares: Sequence[float]) -> tuple[int, float]:
    """Return the last position that a step reached and its share; 1 and 0 where none did."""
    reached = [(i, share) for i, share in enumerate(shares, start=1) if not math.isnan(share)]
    return reached[-1] if reached else (1, 0.0)


def _spread(heights: Mapping[str, float], gap: float) -> dict[str, float]:
    """Return label heights that keep their order and stand at least `gap` apart."""
    placed = dict(sorted(heights.items(), key=lambda item: item[1]))
    for below, above in pairwise(list(placed)):
        placed[above] = max(placed[above], placed[below] + gap)
    return placed
