"""What stands behind the verdict: every lever with its source, projections, faults by cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.judge.comparison import Comparison
from pipeline.measure.wording import number, table
from pipeline.roi.advisor import advisor_details
from pipeline.roi.class_verdicts import class_verdicts
from pipeline.roi.projection import projection_section
from pipeline.roi.sources import Sources
from pipeline.roi.text import OVERLAP, lever_table, pair
from verify.breakdown import Breakdown


def details(comparison: Comparison, names: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Yield the Markdown blocks.

    Args:
        comparison: Judged cells of one target, engine and workload.
        names: Each cell's name by its id.
        folder: The report's folder.
    """
    yield from _levers(comparison, names)
    yield from _inside(breakdowns(comparison, folder), names)
    yield from projection_section([comparison])
    yield from advisor_details(comparison, names)


def breakdowns(comparison: Comparison, folder: Path) -> dict[str, Breakdown]:
    """Read what is known of the inside of verify steps, by cell id.

    A cell's file `cells/<id>/breakdown.json` goes before what its engine traced by itself.
    """
    paths = {r.cell_id: folder / "cells" / r.cell_id / "breakdown.json" for r in comparison.records}
    traced = {r.cell_id: r.settings.get("breakdown", "") for r in comparison.records}
    found = traced | {key: path.read_text() for key, path in paths.items() if path.exists()}
    return {key: Breakdown(**json.loads(text)) for key, text in found.items() if text}


def _levers(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield each class's levers, and once what holds for all of them."""
    verdicts, sources = class_verdicts(comparison, names), Sources()
    if not verdicts:
        return
    yield "## What each lever is worth"
    yield f"Largest gain first; effort is yours to weigh. {OVERLAP}"
    for found in verdicts:
        yield f"### {found.category}: {found.name}"
        yield lever_table(found.verdict, sources)
        if said := pair(found.verdict):
            yield said
    if listed := sources.listed():
        yield listed


def _inside(found: Mapping[str, Breakdown], names: Mapping[str, str]) -> Iterator[str]:
    """Yield what a trace showed inside of verify steps."""
    if not found:
        return
    yield "## Inside a verify step"
    yield (
        "As traced, ms; a profiler slows what it watches. Wire: the all-reduces' own floor; wait:"
        " for a late rank; launch: the device idle."
    )
    parts = ("compute", "wire", "wait", "launch")
    rows = [(names[k], *(number(getattr(b, part)) for part in parts)) for k, b in found.items()]
    yield table(("cell", *parts), rows)
