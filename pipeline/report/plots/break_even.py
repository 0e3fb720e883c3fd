"""Accept length beside break-even: how far each cell is from paying, by class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.measure import Levers
from pipeline.report.plots.panels import (
    DARK,
    FAINT,
    INK,
    LABEL_ROOM,
    MIDDLE,
    SMALL,
    Cells,
    class_panels,
    label,
    rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def break_even(cells: Cells) -> Figure:
    """Draw accept length (dot) beside break-even (bar) and its floor (thin bar), per class."""
    figure, panels = class_panels(cells, len(cells))
    for category, axes in panels.items():
        shown = [(name, m.classes.get(category)) for name, m in cells]
        levers = [f.versus.levers if f and f.versus else None for _, f in shown]
        for row, found in enumerate(levers):
            if found:
                _break_even_row(axes, row, found)
        rows(axes, [name for name, _ in shown], category)
        highest = max(max(x.accept_length, x.break_even) for x in levers if x)
        axes.set_xlim(0.8, 0.8 + LABEL_ROOM * (highest - 0.8))
    figure.supxlabel(
        "accept length (dot) beside break-even, which it must exceed to pay (thick bar;"
        " thin: if drafter and host cost nothing); dark: it does",
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
    label(axes, f"{length:.2f} of {needed:.2f}", max(length, needed), row, 9)
