"""The table that a sweep ends with on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.judge.comparison import Comparison, compare
from pipeline.measure.wording import arm_names, comparison_names, number, sentence
from pipeline.record.record import CellRecord
from pipeline.report.caveats import interleaving
from pipeline.report.origin import drafter_notes
from pipeline.report.tables import categories
from pipeline.report.verdict import verdict


def terminal_table(records: Sequence[CellRecord]) -> str:
    """Return, per comparison, one line a cell: tok/s and speed-up by class; then the verdict.

    `accept` is the accept length over all classes, `needed` the break-even that it must exceed.
    """
    comparisons = compare(records)
    titles = comparison_names([c.records for c in comparisons])
    blocks = [
        "\n".join([title, *_table(c), *_turns(c), "", *_verdict(c)])
        for title, c in zip(titles, comparisons, strict=True)
    ]
    if said := drafter_notes(records):
        blocks.append("\n".join(f"{sentence(note)}." for note in said))
    return "\n\n".join(blocks)


def _verdict(comparison: Comparison) -> Iterator[str]:
    """Yield the verdict's lines as plain text."""
    for line in verdict(comparison, arm_names(comparison.records)):
        yield line.replace("**", "")


def _turns(comparison: Comparison) -> Iterator[str]:
    """Yield which cells were measured at another time than the baseline, if any."""
    if said := interleaving(comparison, arm_names(comparison.records)):
        yield said


def _table(comparison: Comparison) -> Iterator[str]:
    """Yield aligned lines: a head, then the cells in their order."""
    names = arm_names(comparison.records)
    classes = categories(comparison)
    rows = [["", *classes, "all", "accept", "needed"]]
    for record in comparison.records:
        rows.append([names[record.cell_id], *_row(record, comparison, classes)])
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    for row in rows:
        first, *rest = row
        cells = (text.rjust(width) for text, width in zip(rest, widths[1:], strict=False))
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def _row(record: CellRecord, comparison: Comparison, classes: Sequence[str]) -> list[str]:
    """Return a cell's figures, or how it ended."""
    measurement = comparison.measurements.get(record.cell_id)
    if measurement is None:
        return [record.status.value.upper()]
    row = []
    for figures in [*map(measurement.classes.get, classes), measurement.overall]:
        text = "–" if figures is None else number(figures.tok_s.value)
        if figures and figures.versus:
            text += f" {figures.versus.speed_up.value:.2f}x"
        row.append(text)
    versus = measurement.overall.versus
    plain = measurement.is_baseline or versus is None
    row.append(f"{measurement.overall.accept_length.value:.2f}")
    row.append("–" if plain or versus is None else f"{versus.levers.break_even:.2f}")
    return row
