"""The waterfall: from the measured step, part by part, down to the floor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.measure.wording import number
from pipeline.report.plan import in_order
from pipeline.report.plots.panels import (
    DARK,
    FAINT,
    HEAD,
    INK,
    LIGHT,
    MIDDLE,
    SMALL,
    grid,
    label,
    rows,
)
from pipeline.roi.step_anatomy import Anatomy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROW = 0.42  # inches
ROOM = 1.35  # the axis reaches so far beyond the whole step
WRAP = 44  # characters of a row's name on one line


def waterfall(found: Anatomy) -> Figure:
    """Draw the step, what each change takes from it, and what stays.

    Dark: what was measured. Middle: a bound. The vertical line is the step time that
    breaks even.
    """
    ordered = in_order(found)
    figure, (axes,) = grid(1, HEAD + ROW * (len(ordered) + 2))
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
    axes.set_xlim(0, ROOM * max(found.step_ms, needed))
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
