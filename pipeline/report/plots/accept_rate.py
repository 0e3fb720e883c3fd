"""Accept rate by draft position, one line per workload class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pipeline.measure.wording import clipped
from pipeline.report.plots.panels import DARK, FAINT, INK, MIDDLE, SMALL, TITLE, Cells, grid, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WIDEST = 60  # characters of a panel's title
LINES, MARKERS = (DARK, MIDDLE, INK, FAINT), "osD^vP"


def accept_rate(cells: Cells) -> Figure:
    """Draw the accept rate by draft position, one panel per drafter, one line per class."""
    figure, panels = grid(len(cells), 2.6)
    for (name, measurement), axes in zip(cells, panels, strict=True):
        last = measurement.width - 1
        rates = {c: f.accept_rate for c, f in measurement.classes.items()}
        for index, shares in enumerate(rates.values()):
            color, marker = LINES[index % len(LINES)], MARKERS[index % len(MARKERS)]
            axes.plot(range(1, last + 1), shares, color=color, marker=marker)
        ends = {category: _end(shares) for category, shares in rates.items()}
        heights = _spread({category: rate for category, (_, rate) in ends.items()}, 0.085)
        for category, height in heights.items():
            label(axes, category, ends[category][0], height, 8)
        axes.set_title(clipped(name, WIDEST), loc="left", fontsize=TITLE)
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
