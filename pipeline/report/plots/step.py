"""Where a step's time goes, and the step time that would break even."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.measure import Measurement
from pipeline.measure.wording import number
from pipeline.report.plots.panels import (
    DARK,
    HEAD,
    INK,
    LABEL_ROOM,
    LIGHT,
    MIDDLE,
    ROW,
    SMALL,
    Cells,
    grid,
    label,
    rows,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def step(cells: Cells) -> Figure:
    """Draw each cell's step, stacked into verify, draft and host, and what would break even."""
    figure, (axes,) = grid(1, HEAD + ROW * len(cells))
    right = max(_step_row(axes, row, m) for row, (_, m) in enumerate(cells))
    rows(
        axes,
        [name for name, _ in cells],
        "ms per step, all classes (limit, thick bar: would break even)",
    )
    axes.set_xlim(0, LABEL_ROOM * right)
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
