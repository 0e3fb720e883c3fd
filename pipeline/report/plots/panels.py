"""What the plots share: colours, a page of panels, named rows, labels at the marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from pipeline.measure import Measurement
from pipeline.measure.wording import clipped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, chosen so that neighbours also differ in grey: dark, middle, light.
DARK, MIDDLE, LIGHT, INK, FAINT = "#0072B2", "#E69F00", "#C9C9C9", "#222222", "#8A8A8A"
SMALL, TITLE = 9, 10  # points
LABEL_ROOM = 1.45  # an axis reaches so far beyond its last mark
DPI = 165  # sharp at the width of a page, also where a pixel of it is one and a half of the screen
WIDTH, ROW, HEAD = 9.0, 0.34, 0.75  # inches: page, one cell, a panel's title and axis
LINE = 46  # characters of a name on one line
Cells: TypeAlias = Sequence[tuple[str, Measurement]]


def grid(panels: int, height: float) -> tuple[Figure, list[Axes]]:
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


def rows(axes: Axes, names: Sequence[str], title: str) -> None:
    """Name the rows of a panel in the first column, first on top, and clear what is not data."""
    place = axes.get_subplotspec()
    first = place is not None and place.is_first_col()
    shown = [_in_two(name) if first else "" for name in names]
    axes.set_yticks(range(len(names)), shown, fontsize=SMALL)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_title(title, loc="left", fontsize=TITLE, fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=SMALL)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _in_two(name: str) -> str:
    """Break a cell's name before its settings; no line may take the room of the data."""
    lines = name.replace(" (", "\n(", 1).splitlines()
    return "\n".join(clipped(line, LINE) for line in lines)


def label(axes: Axes, text: str, x: float, y: float, gap: int = 5) -> None:
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
