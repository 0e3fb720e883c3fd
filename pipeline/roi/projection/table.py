"""The projection in the report: cells that were not run, and how far off such predictions are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.judge.comparison import Comparison
from pipeline.measure.wording import number, percent, table
from pipeline.roi.projection.costs import Cost, costs
from pipeline.roi.projection.hold_out import summarise
from pipeline.roi.projection.predict import curves, missing, project, self_check


def projection_section(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yield the projected cells of a grid with gaps, and the check on its measured cells."""
    found = costs(comparisons)
    hidden = self_check(found)
    if not hidden:
        return
    yield "## Cells that were not run, projected"
    errors = summarise(hidden)
    yield (
        f"Each cell with a drafter hidden in turn and its tok/s predicted from the others:"
        f" median error {100 * errors.median:.1f} %, 90th percentile {100 * errors.p90:.1f} %,"
        f" {percent(errors.covered)} of {errors.number} inside the 95 % interval."
    )
    rows = list(_rows(found))
    if rows:
        head = ("cell", "class", "accept length", "step, ms (95 %)", "tok/s (95 %)")
        yield table(head, rows, text=2)
    else:
        yield "The grid has no gap: every measured drafter ran with every measured backend."


def _rows(found: Sequence[Cost]) -> Iterator[tuple[str, ...]]:
    """Yield one row per cell and class that is missing."""
    fitted = curves(found)
    for place in missing(found):
        projection = project(found, fitted, place)
        if projection:
            step, speed, length = projection.step_ms, projection.tok_s, projection.accept_length
            yield (
                f"{place.drafter} × {place.verify} (width {place.width})",
                place.category,
                f"{number(length.low)}–{number(length.high)}",
                f"{number(step.value)} ({number(step.low)}–{number(step.high)})",
                f"{number(speed.value)} ({number(speed.low)}–{number(speed.high)})",
            )
