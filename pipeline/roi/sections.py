"""The verdict's part of a report: which lever, where cells stand, what is known to go wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.judge import Comparison
from pipeline.roi.advisor import advisor_section
from pipeline.roi.deploy import deploy_command
from pipeline.roi.plan import anatomy, write_plan
from pipeline.roi.plots.iso_speed import iso_speed
from pipeline.roi.plots.waterfall import waterfall
from pipeline.roi.projection import projection_section
from pipeline.roi.sweep import ClassVerdict, class_verdicts
from pipeline.roi.verdict import headline, lever_table, what_next
from pipeline.wording import code, comparison_names, number
from verify.breakdown import Breakdown

DPI = 110


def sections(
    comparison: Comparison, names: Mapping[str, str], folder: Path, prefix: str = ""
) -> Iterator[str]:
    """Write the plots and the plan into the folder, and yield the Markdown blocks.

    Args:
        comparison: Judged cells of one target, engine and workload.
        names: Each cell's name by its id.
        folder: The report's folder.
        prefix: Before each file's name, to tell comparisons apart.
    """
    verdicts = class_verdicts(comparison, names)
    if verdicts:
        yield "## What to invest in"
        yield from _investments(verdicts)
        yield from _plots(comparison, folder, prefix)
        yield from _recommended(verdicts)
        yield from projection_section([comparison])
    yield from advisor_section(comparison, names)


def _investments(verdicts: list[ClassVerdict]) -> Iterator[str]:
    """Yield each class's verdict and levers."""
    for found in verdicts:
        yield f"### {found.category}: {found.name}"
        yield "\n".join(f"- {line}" for line in headline(found.verdict, found.decided))
        if found.verdict.clashes:
            yield "\n".join(f"- **Does not fit:** {c}." for c in found.verdict.clashes)
        yield lever_table(found.verdict, linked=True)
        if said := what_next(found.verdict):
            yield said


def _plots(comparison: Comparison, folder: Path, prefix: str) -> Iterator[str]:
    """Write the two plots and the plan, and yield the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = iso_speed(comparison)
    if figure:
        figure.savefig(folder / f"{prefix}iso_speed.png", dpi=DPI)
        yield f"![Accept length against step time, lines of equal speed]({prefix}iso_speed.png)"
    found = anatomy(comparison, _breakdowns(comparison, folder))
    if found:
        waterfall(found).savefig(folder / f"{prefix}waterfall.png", dpi=DPI)
        title = comparison_names([comparison.records])[0]
        plan = write_plan(found, title, folder, prefix)
        yield f"![From the measured step to the floor]({prefix}waterfall.png)"
        yield f"The plan, from the same figures: [{plan}]({plan})."


def _breakdowns(comparison: Comparison, folder: Path) -> dict[str, Breakdown]:
    """Read what is known of the inside of verify steps.

    A cell's file `cells/<id>/breakdown.json` goes before what its engine traced by itself.
    """
    paths = {r.cell_id: folder / "cells" / r.cell_id / "breakdown.json" for r in comparison.records}
    traced = {r.cell_id: r.settings.get("breakdown", "") for r in comparison.records}
    found = traced | {key: path.read_text() for key, path in paths.items() if path.exists()}
    return {key: Breakdown(**json.loads(text)) for key, text in found.items() if text}


def _recommended(verdicts: list[ClassVerdict]) -> Iterator[str]:
    """Yield which cell to serve by class, the command that does, and what would change it."""
    yield "## What to serve"
    for found in verdicts:
        yield _serve(found)
    commands: dict[str, list[str]] = {}
    for found in verdicts:
        if found.shown:
            commands.setdefault(deploy_command(found.record), []).append(found.category)
    for command, categories in commands.items():
        yield f"Serve {', '.join(categories)} with SGLang:"
        yield code(command)


def _serve(found: ClassVerdict) -> str:
    """Say what to serve on one class and what would change that."""
    at = found.verdict.situation
    needed = number(at.levers.needed_step_ms)
    if found.shown:
        return (
            f"**{found.category}: {found.name}** ({at.speed_up:.2f}x). It stops paying below an"
            f" accept length of {at.levers.break_even:.2f} or above {needed} ms a step."
        )
    if at.speed_up > 1:
        return (
            f"**{found.category}: plain decoding** until more prompts show that {found.name} pays:"
            f" {at.speed_up:.2f}x is not shown to differ from 1."
        )
    return (
        f"**{found.category}: plain decoding.** {found.name} pays from an accept length of"
        f" {at.levers.break_even:.2f} (now {at.accept_length:.2f}) or below {needed} ms a step"
        f" (now {number(at.step_ms)})."
    )
