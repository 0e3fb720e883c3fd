"""The verdict's plots: accept length against step time, and the waterfall down to the floor."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures
from pipeline.measure.wording import arm_names, clipped, number
from pipeline.record.record import CellRecord
from pipeline.report.plots.panels import (
    DARK,
    FAINT,
    HEAD,
    INK,
    LIGHT,
    MIDDLE,
    SMALL,
    TITLE,
    grid,
    label,
    rows,
)
from pipeline.roi.step_anatomy import Anatomy, in_order
from pipeline.roi.verdict import drafted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKERS, FILLS = "osD^vPp<h>*8d", (DARK, MIDDLE, "white", LIGHT)
ISO = (0.25, 0.5, 2.0, 4.0)  # times the baseline
HEIGHT = 3.1  # inches of a panel
ROOM = 1.3  # the axes reach so far beyond the outermost point
LONGEST_ARM = 46  # characters of a drafter in the key
KEY, MARK = 118, 8  # characters that the key is wide, and those that a mark takes
TICKS = [digit * 10.0**power for power in range(-1, 4) for digit in (1, 2, 5)]  # ms
LENGTHS = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
WATERFALL_ROW = 0.42  # inches
WATERFALL_ROOM = 1.35  # its axis reaches so far beyond the whole step
WRAP = 44  # characters of a row's name on one line


def iso_speed(comparison: Comparison) -> Figure | None:
    """Draw one panel per class; None if no cell has a baseline.

    Both axes are logarithmic, so that lines of equal speed are parallel and a lever's worth is a
    distance: left is a cheaper step, up a longer accept length. Above the thick line speculation
    pays. A marker's shape is its drafter, its fill the verify backend. Where the baseline ran again
    beside a cell, the cell's step is scaled by how much slower the baseline was then, so that its
    distance to the lines is the speed-up that the tables state.
    """
    points = list(drafted(comparison))
    if not points:
        return None
    records = {r.cell_id: r for r in comparison.records}
    names = {k: _arm(records[k], name) for k, name in arm_names(comparison.records).items()}
    arms = dict.fromkeys(names[key] for key, _, _ in points)
    backends = dict.fromkeys(records[key].params["verify"] for key, _, _ in points)
    markers = dict(zip(arms, cycle(MARKERS), strict=False))
    fills = dict(zip(backends, cycle(FILLS), strict=False))
    categories = list(dict.fromkeys(category for _, category, _ in points))
    figure, panels = grid(len(categories), HEIGHT)
    for category, axes in zip(categories, panels, strict=True):
        own = [(records[key], f) for key, c, f in points if c == category]
        plain = _plain_ms(comparison, category, own[0][1])
        steps = [f.rescaled_to(plain).step_ms for _, f in own]
        _panel(axes, category, plain, (steps, [f.accept_length.value for _, f in own]))
        for (record, figures), step in zip(own, steps, strict=True):
            look = markers[names[record.cell_id]], fills[record.params["verify"]]
            _point(axes, step, figures, look)
    _key(figure, markers, fills, any(records[key].control for key, _, _ in points))
    return figure


def _arm(record: CellRecord, name: str) -> str:
    """Name a drafter at its width, with what tells it from others of its kind."""
    drafter = name.replace(f" × {record.params['verify']}", "", 1)
    return f"{clipped(drafter, LONGEST_ARM)} (width {record.width})"


def _plain_ms(comparison: Comparison, category: str, other: Figures) -> float:
    """Return the best baseline's ms per token on one class, as it was measured first."""
    best = comparison.best and comparison.measurements.get(comparison.best.cell_id)
    figures = best.classes.get(category, other) if best else other
    return figures.plain_ms


def _panel(
    axes: Axes, category: str, plain: float, points: tuple[list[float], list[float]]
) -> None:
    """Set up one class's axes with the lines of equal speed and plain decoding's own point.

    Args:
        axes: The panel.
        category: Its title.
        plain: The best baseline's ms per token.
        points: The cells' steps in ms, and their accept lengths.
    """
    steps, lengths = points
    left, right = min(plain, *steps) / ROOM, max(plain, *steps) * ROOM
    top = max(1.5, *lengths) * ROOM
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(0.93, top))
    for times in (*ISO, 1.0):
        _line(axes, times, plain, (left, right, top))
    axes.plot(plain, 1.0, "x", color=INK, markersize=9, markeredgewidth=2.5, zorder=3)
    axes.set_title(category, loc="left", fontsize=TITLE, fontweight="bold", pad=16)
    axes.spines[["top", "right"]].set_visible(False)
    axes.minorticks_off()
    axes.set_yticks([n for n in LENGTHS if n <= top], [f"{n:g}" for n in LENGTHS if n <= top])
    ticks = [t for t in TICKS if left <= t <= right]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.tick_params(labelsize=SMALL)


def _line(axes: Axes, times: float, plain: float, box: tuple[float, float, float]) -> None:
    """Draw the line of one speed and label it where it leaves the panel."""
    left, right, top = box
    base = times == 1.0
    axes.plot(
        [left, right],
        [left * times / plain, right * times / plain],
        color=INK if base else FAINT,
        linewidth=2.2 if base else 0.8,
        linestyle="-" if base else (0, (4, 3)),
        zorder=1,
    )
    leaves_on_top = right * times / plain > top
    x, y = (top * plain / times, top) if leaves_on_top else (right, right * times / plain)
    if x < left * 1.05 or y < 1.0:
        return
    axes.annotate(
        f"{number(1000 / plain)} tok/s" if base else f"{times:g}x",
        (x, y),
        (0, 3) if leaves_on_top else (3, 0),
        textcoords="offset points",
        ha="center" if leaves_on_top else "left",
        va="bottom" if leaves_on_top else "center",
        fontsize=SMALL - 1,
        color=INK if base else FAINT,
        fontweight="bold" if base else "normal",
        annotation_clip=False,
    )


def _point(axes: Axes, x: float, figures: Figures, look: tuple[str, str]) -> None:
    """Draw one cell with the interval of its accept length; `look` is its marker and its fill."""
    (marker, fill), length = look, figures.accept_length
    axes.plot([x, x], [length.low, length.high], color=INK, linewidth=1, zorder=2)
    axes.plot(
        x,
        length.value,
        marker,
        markersize=9,
        markerfacecolor=fill,
        markeredgecolor=INK,
        zorder=4,
    )


def _key(
    figure: Figure, markers: Mapping[str, str], fills: Mapping[str, str], scaled: bool
) -> None:
    """Write what shapes and fills mean, and the axes' names; `scaled`: some steps are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    plain = Line2D([], [], ls="", marker="x", color=INK, mew=2.5, label="plain decoding")
    shapes = [
        Line2D([], [], ls="", marker=marker, mfc="white", mec=INK, label=arm)
        for arm, marker in markers.items()
    ]
    patches = [Patch(fc=fill, ec=INK, label=backend) for backend, fill in fills.items()]
    handles = [plain, *shapes, *patches]
    figure.legend(
        handles=handles,
        loc="outside upper left",
        ncols=_columns([str(handle.get_label()) for handle in handles]),
        frameon=False,
        fontsize=SMALL,
    )
    note = ", later cells scaled to its first turns" if scaled else ""
    figure.supxlabel(
        f"step, ms (thick line: the best baseline{note}; above it pays)", fontsize=SMALL
    )
    figure.supylabel("accept length", fontsize=SMALL)


def _columns(labels: list[str]) -> int:
    """Return how many columns of the key fit beside each other; it fills them one by one."""
    for count in range(len(labels), 1, -1):
        columns = np.array_split(np.array([len(label) for label in labels]), count)
        if sum(int(column.max()) + MARK for column in columns) <= KEY:
            return count
    return 1


def waterfall(found: Anatomy) -> Figure:
    """Draw the step, what each change takes from it, and what stays.

    Dark: what was measured. Middle: a bound. The vertical line is the step time that
    breaks even.
    """
    ordered = in_order(found)
    figure, (axes,) = grid(1, HEAD + WATERFALL_ROW * (len(ordered) + 2))
    axes.barh(0, found.step_ms, 0.6, color=LIGHT, edgecolor=INK, linewidth=0.6)
    label(axes, f"{number(found.step_ms)} ms", found.step_ms, 0)
    for row, (part, after) in enumerate(ordered, start=1):
        color = DARK if part.measured else MIDDLE
        hatch = "" if part.measured else "///"
        axes.barh(row, part.ms, 0.6, after, color=color, hatch=hatch, edgecolor=INK, linewidth=0.6)
        axes.plot([after, after], [row + 0.3, row + 0.7], color=FAINT, linewidth=0.8)
        label(axes, f"−{number(part.ms)} ms", after + part.ms, row)
    last = len(ordered) + 1
    stays = ordered[-1][1] if ordered else found.step_ms
    axes.barh(last, stays, 0.6, color=LIGHT, edgecolor=INK, linewidth=0.6)
    label(axes, f"{number(stays)} ms", stays, last)
    needed = found.accept_length * found.ms_per_token
    axes.axvline(needed, color=INK, linewidth=1.6, linestyle=(0, (5, 2)), zorder=0)
    names = [
        found.record.label,
        *(_wrap(part.name) for part, _ in ordered),
        "plain forward: the floor",
    ]
    rows(axes, names, "ms per step, all classes")
    axes.set_xlim(0, WATERFALL_ROOM * max(found.step_ms, needed))
    scaled = " · later cells scaled by the baseline beside them" if found.scaled else ""
    figure.supxlabel(
        f"dashed: breaks even at {number(needed)} ms · dark: measured · hatched: a bound{scaled}",
        fontsize=SMALL,
    )
    return figure


def _wrap(name: str) -> str:
    """Break a long name behind a semicolon, else at a space."""
    if len(name) <= WRAP:
        return name
    cut = name.find("; ", 0, WRAP) + 1 or name.rfind(" ", 0, WRAP)
    return f"{name[:cut]}\n{name[cut + 1 :]}"
