"""The report's file: the verdict, the plots, then the sections of each comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.judge import Comparison, compare
from pipeline.plots import draw
from pipeline.record import CellRecord, write_atomically
from pipeline.report import notes, origin, tables
from pipeline.report.page import write_page
from pipeline.report.verdict import verdict
from pipeline.roi.sections import sections
from pipeline.wording import arm_names, comparison_names


def write_report(
    records: Sequence[CellRecord], folder: Path, provenance: Mapping[str, str]
) -> Path:
    """Write `report.md`, its plots and the same as one page, and return the path of the first.

    Args:
        records: The cells of a sweep, at least one, in the order of the grid.
        folder: Where the report goes; made if it is missing.
        provenance: Flat facts about code, packages and machine.

    Raises:
        ValueError: There is no cell.
    """
    if not records:
        raise ValueError("records is empty: a report needs at least one cell")
    comparisons = compare(records)
    titles = comparison_names([c.records for c in comparisons])
    blocks = list(_verdicts(comparisons, titles))
    for index, (title, comparison) in enumerate(zip(titles, comparisons, strict=True)):
        prefix = f"{index + 1}-" if len(comparisons) > 1 else ""
        blocks += [f"# {title}", *_sections(comparison, folder, prefix)]
    judged = [r for c in comparisons for r in c.records]
    names = {k: v for c in comparisons for k, v in arm_names(c.records).items()}
    blocks += [*notes.ends(judged, names), *origin.ran(judged, names)]
    blocks += origin.origin(judged, names, provenance)
    path = folder / "report.md"
    text = "\n\n".join(blocks) + "\n"
    write_atomically(path, text)
    write_page(text, folder, titles[0])
    return path


def _verdicts(comparisons: Sequence[Comparison], titles: Sequence[str]) -> Iterator[str]:
    """Yield each comparison's verdict as a list of three lines; several are named."""
    for title, comparison in zip(titles, comparisons, strict=True):
        lines = verdict(comparison, arm_names(comparison.records))
        if len(comparisons) > 1:
            lines[0] = f"{title}: {lines[0]}"
        yield "\n".join(f"- {line}" for line in lines)


def _sections(comparison: Comparison, folder: Path, prefix: str) -> Iterator[str]:
    """Yield one comparison's plots, tables and notes."""
    names = arm_names(comparison.records)
    for name, caption in draw(comparison, names, folder, prefix):
        yield f"![{caption}]({name})"
    if comparison.measurements:
        yield from tables.speed_tables(comparison, names)
        yield from sections(comparison, names, folder, prefix)
        yield from tables.step_table(comparison, names)
        yield from tables.accept_table(comparison, names)
        yield from notes.quiet(comparison, names)
    yield from notes.loops(comparison, names)
    yield from notes.outputs(comparison, names)
