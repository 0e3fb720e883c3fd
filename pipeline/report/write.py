"""The report's files: what to do on the first screen, an appendix of tables, and all as one page.

A browser shows the page wherever it goes, for its pictures are inside it: MLflow shows a Markdown
artifact without its pictures, and mail or chat has no folder to find them in. The words are those
of `report.md` and of its appendix, whose sections are folded.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.judge.comparison import Comparison, compare
from pipeline.measure.wording import arm_names, comparison_names
from pipeline.record.record import CellRecord, write_atomically
from pipeline.record.sweep_folder import SweepFolder
from pipeline.report import origin, tables
from pipeline.report import trust as notes
from pipeline.report.investment import PLAN, sections
from pipeline.report.investment import details as roi_details
from pipeline.report.plots.by_cell import draw
from pipeline.report.tables import overview
from pipeline.report.trust import trust
from pipeline.report.verdict import verdict

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

APPENDIX = "report-details.md"
STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; max-width: 76rem; margin: 1rem auto; padding: 0 1rem;
       color: #222; background: #fff }
h1, h2, summary { border-bottom: 1px solid #ddd; padding-bottom: .2em; margin: 1em 0 .6em }
h1 { font-size: 1.5em }
h2, summary { font-size: 1.25em; font-weight: 600 }
summary { cursor: pointer }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: .8em 0 }
th, td { border: 1px solid #ddd; padding: .15em .6em }
td[style*=right], td:first-child:not(:has(+ td[style*=left])) { white-space: nowrap }
pre { background: #f6f6f6; padding: .8em; overflow-x: auto; font-size: 13px }
img { max-width: min(100%, 62rem) }
@media (max-width: 60rem) {  /* the pane of a tracker */
  body { font-size: 12px; margin: .5rem auto }
  ul { padding-left: 1.5em }
  th, td { padding: .1em .35em }
  td:first-child { white-space: normal !important }
}
"""


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
        plan = f"{prefix}{PLAN}"
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


def write_page(text: str, details: str, plans: Sequence[str], folder: Path) -> Path:
    """Write `report.html` beside the report, and return its path.

    Args:
        text: The report's Markdown. HTML in it is shown, not obeyed: a log may say anything.
        details: Its appendix; each section of the second level is folded under its heading.
        plans: Files in the folder that the text links to: folded too, where there is no folder.
        folder: The report's folder, where its pictures are.
    """
    from markdown_it import MarkdownIt  # most commands write no report

    markdown = MarkdownIt("js-default")
    folded = _folded(markdown, details)
    for name in plans:
        text = text.replace(f"[{name}]({name})", "folded below")
        folded += _folded(markdown, _section(folder / name))
    body = re.sub(
        r'<img src="([^":/]+\.png)"',
        lambda m: _embedded(m, folder),
        markdown.render(text) + folded,
    )
    title = re.search("<h1>(.*)</h1>", body)
    path = folder / "report.html"
    write_atomically(
        path,
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        f"<title>{title[1] if title else 'report'}</title><style>{STYLE}</style>\n{body}</html>\n",
    )
    return path


def _section(plan: Path) -> str:
    """Return a plan as one section of the second level, without the picture that the text has."""
    return re.sub(r"^!\[.*\n", "", re.sub("^#", "##", plan.read_text(), flags=re.M), flags=re.M)


def _folded(markdown: MarkdownIt, text: str) -> str:
    """Render Markdown with each section of the second level folded under its heading."""
    tokens, opened, out = markdown.parse(text), "", ""
    for token in tokens:
        heading = token.type.startswith("heading_") and token.level == 0
        if heading and token.type == "heading_open" and token.tag in ("h1", "h2"):
            out += opened
            opened = "</details>\n" if token.tag == "h2" else ""
        if heading and token.tag == "h2":
            out += "<details><summary>" if token.type == "heading_open" else "</summary>\n"
        else:
            out += markdown.renderer.render([token], markdown.options, {})
    return out + opened


def _embedded(tag: re.Match[str], folder: Path) -> str:
    """Return the beginning of an image's tag with the picture inside it, if the folder has one."""
    picture = folder / tag[1]
    if not picture.is_file():
        return tag[0]  # named by a log or a reason, not by the report
    data = base64.b64encode(picture.read_bytes()).decode("ascii")
    return f'<img src="data:image/png;base64,{data}"'
