"""Decode tok/s of each cell beside the best baseline, one panel per workload class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.measure import Figures
from pipeline.measure.wording import number
from pipeline.report.plots.panels import (
    DARK,
    FAINT,
    INK,
    LABEL_ROOM,
    LIGHT,
    SMALL,
    Cells,
    class_panels,
    label,
    rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def speed(cells: Cells) -> Figure:
    """Draw tok/s with its interval, one panel per class, beside the best baseline.

    The baseline is marked row by row: where it ran again beside later cells, each row shows what
    its own speed-up is against. The marks join to one line where all cells took turns.
    """
    figure, panels = class_panels(cells, len(cells))
    for category, axes in panels.items():
        shown = [(name, m.classes.get(category)) for name, m in cells]
        for row, (_, figures) in enumerate(shown):
            if figures:
                _speed_row(axes, row, figures)
        rows(axes, [name for name, _ in shown], category)
        highest = max(max(f.tok_s.value, f.tok_s.high) for _, f in shown if f)
        axes.set_xlim(0, LABEL_ROOM * highest)
    figure.supxlabel(
        "decode tok/s with 95 % interval · times the best baseline in the cell's own turns (line);"
        " dark: shown to be faster",
        fontsize=SMALL,
    )
    return figure


def _speed_row(axes: Axes, row: int, figures: Figures) -> None:
    """Draw one cell's bar, interval and label."""
    rate, versus = figures.tok_s, figures.versus
    gains = versus is not None and versus.speed_up.low > 1
    axes.barh(row, rate.value, height=0.55, color=DARK if gains else LIGHT)
    axes.plot([rate.low, rate.high], [row, row], color=INK, linewidth=1.2)
    if versus:
        at = versus.baseline_tok_s
        axes.plot([at, at], [row - 0.5, row + 0.5], color=FAINT, linewidth=1, zorder=0)
    text = number(rate.value) + (f" · {versus.speed_up.value:.2f}x" if versus else "")
    label(axes, text, max(rate.value, rate.high), row)
