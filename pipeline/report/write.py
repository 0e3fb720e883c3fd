"""The report's files: what to do on the first screen, and the tables behind it in an appendix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.judge.comparison import Comparison, compare
from pipeline.measure.wording import arm_names, comparison_names
from pipeline.record.record import CellRecord, write_atomically
from pipeline.record.sweep_folder import SweepFolder
from pipeline.report import origin, tables
from pipeline.report import trust as notes
from pipeline.report.investment import details as roi_details
from pipeline.report.investment import sections
from pipeline.report.page import write_page
from pipeline.report.plan import NAME
from pipeline.report.plots.by_cell import draw
from pipeline.report.tables import overview
from pipeline.report.trust import trust
from pipeline.report.verdict import verdict

APPENDIX = "report-details.md"


@dataclass
class _Blocks:
    """Markdown blocks of a report.

    Attributes:
        short: Of its first screens.
        long: Of its appendix.
        plans: File names of the plans that the short ones link to.
    """

    short: list[str] = field(default_factory=list)
    long: list[str] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)


def write_report(
    records: Sequence[CellRecord],
    folder: Path,
    provenance: Mapping[str, str],
    damaged: Sequence[str] = (),
) -> Path:
    """Write `report.md`, its appendix and plots, and all as one page; return the first one's path.

    In a sweep's own folder the verdict is noted in `sweep.json`, where the tracker finds it.

    Args:
        records: The cells of a sweep, at least one, in the order of the grid.
        folder: Where the report goes; made if it is missing.
        provenance: Flat facts about code, packages and machine.
        damaged: A line for each cell that could not be read back.

    Raises:
        ValueError: There is no cell.
    """
    if not records:
        raise ValueError("records is empty: a report needs at least one cell")
    comparisons = compare(records)
    verdicts = [verdict(c, arm_names(c.records)) for c in comparisons]
    found = _compared(comparisons, verdicts, folder)
    judged = [r for c in comparisons for r in c.records]
    names = {k: v for c in comparisons for k, v in arm_names(c.records).items()}
    found.short += [*notes.ends(judged, names, damaged), *origin.origin(judged, names, provenance)]
    found.long += [*notes.logs(judged, names), *origin.took(judged, names)]
    found.long += [*origin.settings(judged, names, provenance), *origin.commands(judged, names)]
    text, details = ("\n\n".join(blocks) + "\n" for blocks in (found.short, found.long))
    rest = f"Every table and setting behind this: [{APPENDIX}]({APPENDIX})."
    write_atomically(folder / APPENDIX, details)
    write_atomically(folder / "report.md", f"{text}\n{rest}\n")
    write_page(text, details, found.plans, folder)
    if (folder / "sweep.json").exists():
        SweepFolder(folder).note(verdict=[line for lines in verdicts for line in lines])
    return folder / "report.md"


def _compared(
    comparisons: Sequence[Comparison], verdicts: Sequence[Sequence[str]], folder: Path
) -> _Blocks:
    """Write plots and plans, and return what there is to say of each comparison."""
    titles = comparison_names([c.records for c in comparisons])
    found = _Blocks(short=list(_named(verdicts, titles)))
    for index, (title, comparison) in enumerate(zip(titles, comparisons, strict=True)):
        prefix = f"{index + 1}-" if len(comparisons) > 1 else ""
        pictures = _pictures(comparison, folder, prefix)
        short = list(_short(comparison, folder, prefix, pictures))
        found.short += [f"# {title}", *short]
        found.long += [f"# Behind the report: {title}", *_long(comparison, folder, pictures)]
        plan = f"{prefix}{NAME}"
        found.plans += [plan] * any(f"({plan})" in block for block in short)
    return found


def _named(verdicts: Sequence[Sequence[str]], titles: Sequence[str]) -> Iterator[str]:
    """Yield each comparison's verdict as a list of its lines; several are named."""
    for title, (first, *others) in zip(titles, verdicts, strict=True):
        lines = [f"{title}: {first}" if len(verdicts) > 1 else first, *others]
        yield "\n".join(f"- {line}" for line in lines)


def _pictures(comparison: Comparison, folder: Path, prefix: str) -> dict[str, str]:
    """Draw the plots, and return each as Markdown by its name."""
    drawn = draw(comparison, arm_names(comparison.records), folder, prefix)
    return {
        name.removeprefix(prefix).removesuffix(".png"): f"![{caption}]({name})"
        for name, caption in drawn
    }


def _short(
    comparison: Comparison, folder: Path, prefix: str, pictures: Mapping[str, str]
) -> Iterator[str]:
    """Yield what one comparison's first screens show."""
    names = arm_names(comparison.records)
    if comparison.measurements:
        yield from overview(comparison, names)
        yield from filter(None, [pictures.get("speed")])
        yield from sections(comparison, names, folder, prefix)
        yield from trust(comparison, names)


def _long(comparison: Comparison, folder: Path, pictures: Mapping[str, str]) -> Iterator[str]:
    """Yield the tables behind one comparison, section by section."""
    names = arm_names(comparison.records)
    if comparison.measurements:
        yield from _under(tables.speed_tables(comparison, names), pictures.get("break_even"))
        yield from roi_details(comparison, names, folder)
        yield from _under(tables.step_table(comparison, names), pictures.get("step"))
        yield from _under(tables.accept_table(comparison, names), pictures.get("accept_rate"))
        yield from notes.quiet(comparison, names)
    yield from notes.loops(comparison, names)
    yield from notes.outputs(comparison, names)


def _under(section: Iterator[str], picture: str | None) -> Iterator[str]:
    """Yield a section with its picture, if there is one, under its heading."""
    for index, block in enumerate(section):
        yield block
        if index == 0 and picture:
            yield picture
