"""Breakdowns of verify steps as a table and as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from verify.breakdown import Breakdown

PARTS = ("compute", "wire", "wait", "launch")


def table(cells: Mapping[str, tuple[Breakdown, Breakdown | None]]) -> str:
    """Return a Markdown table of cells: by ablation, by trace, and how far they are apart."""
    lines = [
        "| cell | verify_ms | compute | wire | wait | launch | by trace | furthest part |",
        "|---" * 8 + "|",
    ]
    for label, (ablated, traced) in cells.items():
        parts = " | ".join(f"{getattr(ablated, part):.3f}" for part in PARTS)
        other, apart = "–", "–"
        if traced is not None:
            other = " + ".join(f"{getattr(traced, part):.3f}" for part in PARTS)
            apart = f"{furthest(ablated, traced):.1%}"
        lines.append(f"| {label} | {ablated.total:.3f} | {parts} | {other} | {apart} |")
    return "\n".join(lines)


def furthest(one: Breakdown, other: Breakdown) -> float:
    """Return the largest difference of any part, each as a share of its own step."""
    shares = (
        abs(getattr(one, part) / one.total - getattr(other, part) / other.total) for part in PARTS
    )
    return float(max(shares))


def plot(cells: Mapping[str, Breakdown], path: Path) -> None:
    """Draw the cells' parts stacked, in ms."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.2 + 0.5 * len(cells)), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(cells)
    for part in PARTS:
        widths = [getattr(cell, part) for cell in cells.values()]
        axes.barh(list(cells), widths, left=left, label=part)
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    axes.set_xlabel("ms a verify step")
    axes.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=len(PARTS))
    figure.savefig(path)
