"""The report's four plots: readable in grey, labelled where the marks are, a laptop wide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.judge.comparison import Comparison
from pipeline.measure import Measurement
from pipeline.measure.wording import percent
from pipeline.report.plots.accept_rate import accept_rate
from pipeline.report.plots.break_even import break_even
from pipeline.report.plots.panels import DPI, Cells
from pipeline.report.plots.speed import speed
from pipeline.report.plots.step import step

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        (
            "break_even",
            "Accept length beside break-even, by class",
            [c for c in drafted if c[1].overall.versus],
            break_even,
        ),
        ("step", "Where a step's time goes", cells, step),
        ("accept_rate", "Accept rate by draft position", distinct(drafted), accept_rate),
    ]
    for name, caption, shown, plot in plots:
        if shown:
            folder.mkdir(parents=True, exist_ok=True)
            plot(shown).savefig(folder / f"{prefix}{name}.png", dpi=DPI)
            yield f"{prefix}{name}.png", caption


def distinct(cells: Cells) -> Cells:
    """Return one cell of those that accepted alike, as a drafter does on lossless backends.

    Its name says how many more it stands for. Cells may have repeated another number of times, so
    rates are compared, not counts.
    """
    alike: dict[tuple[str, ...], list[int]] = {}
    for index, (_, measurement) in enumerate(cells):
        alike.setdefault(acceptance(measurement), []).append(index)
    return [(_standing(cells, found), cells[found[0]][1]) for found in alike.values()]


def acceptance(measurement: Measurement) -> tuple[str, ...]:
    """Return what two cells that accept alike have in common: accept rates by class, as written."""
    classes = measurement.classes.items()
    return tuple(f"{name} {percent(rate)}" for name, f in classes for rate in f.accept_rate)


def _standing(cells: Cells, found: list[int]) -> str:
    """Name the first of some cells and how many others it stands for."""
    name = cells[found[0]][0]
    return name if len(found) == 1 else f"{name} and {len(found) - 1} alike"
