"""The verdict's part of a report: which lever, what to serve, what is known to go wrong.

With it goes the plan, `eagle-fast-verify.md`: what to change in which order, and when to stop, from
a sweep's cells.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.judge.comparison import Comparison
from pipeline.measure.statistics import noise
from pipeline.measure.wording import code, comparison_names, grouped, number, percent, table, times
from pipeline.record.record import write_atomically
from pipeline.report.plots.investment import iso_speed, waterfall
from pipeline.report.plots.panels import DPI
from pipeline.roi.advisor import advisor_details, advisor_section
from pipeline.roi.projection.costs import Cost, costs
from pipeline.roi.projection.predict import curves, missing, project, self_check, summarise
from pipeline.roi.step_anatomy import Anatomy, anatomy, in_order
from pipeline.roi.text import class_levers, narrowing, next_lever, next_step
from pipeline.roi.verdict import ClassVerdict, class_verdicts, furthest
from verify.breakdown import Breakdown

PLAN = "eagle-fast-verify.md"
OTHER_TURNS = (
    " Cells were measured at different times, each beside the baseline again: times of other cells"
    " are scaled by it to this one's, so they differ from the report's tables."
)
INVESTMENTS = (
    "class",
    "best with a drafter",
    "invest next in",
    "gives tok/s",
    "x baseline",
    "now (95 %)",
    "accept length",
    "break-even",
    "its floor (verify only)",
)


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
        yield from _plots(comparison, verdicts, folder, prefix)
        yield from _recommended(verdicts)
    yield from advisor_section(comparison, names)


def _investments(verdicts: list[ClassVerdict]) -> Iterator[str]:
    """Yield where each class stands, its next lever, and what would narrow a lever's worth."""
    yield table(INVESTMENTS, map(_investment, verdicts), text=3)
    yield (
        "Next is a lever that can close the gap to plain decoding: at its low end, or else at its"
        " high end, or else a bound; of a class that pays, the lever that gains most. Undecided:"
        " too few prompts to tell from plain decoding. The floor of break-even is what is left of"
        " it if draft and host cost nothing."
    )
    clashes = _by_class((found, clash) for found in verdicts for clash in found.verdict.clashes)
    if clashes:
        yield "\n".join(
            f"- **Does not fit** on {where}: {what}." for what, where in clashes.items()
        )
    wanted = ((found, said) for found in verdicts if (said := narrowing(found.verdict)))
    for what, where in _by_class(wanted).items():
        yield f"**Measure next** ({where}): {what}."


def _investment(found: ClassVerdict) -> tuple[str, ...]:
    """Return one class's row."""
    at = found.verdict.situation
    undecided = "" if found.decided else ", undecided"
    return (
        found.category,
        found.name,
        *next_lever(found.verdict),
        f"{times(found.speed_up)}{undecided}",
        f"{at.accept_length:.2f}",
        f"{at.levers.break_even:.2f}",
        f"{at.levers.break_even_floor:.2f}",
    )


def _by_class(said: Iterable[tuple[ClassVerdict, str]]) -> dict[str, str]:
    """Return the classes by what is said of them, in order: what is said of several comes once."""
    where = grouped((text, found.category) for found, text in said)
    return {text: ", ".join(categories) for text, categories in where.items()}


def _plots(
    comparison: Comparison, verdicts: list[ClassVerdict], folder: Path, prefix: str
) -> Iterator[str]:
    """Write the two plots and the plan, and yield the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = iso_speed(comparison)
    if figure:
        figure.savefig(folder / f"{prefix}iso_speed.png", dpi=DPI)
        yield f"![Accept length against step time, lines of equal speed]({prefix}iso_speed.png)"
    found = anatomy(comparison, breakdowns(comparison, folder))
    if found:
        waterfall(found).savefig(folder / f"{prefix}waterfall.png", dpi=DPI)
        title = comparison_names([comparison.records])[0]
        first = furthest(verdicts)
        decision = f"**Next, on {first.category}:** {next_step(first.verdict)}"
        plan = write_plan(found, title, decision, folder, prefix)
        yield f"![From the measured step to the floor]({prefix}waterfall.png)"
        yield f"The plan, from the same figures: [{plan}]({plan})."


def _recommended(verdicts: list[ClassVerdict]) -> Iterator[str]:
    """Yield which cell to serve by class, the command that does, and what would change it."""
    yield "## What to serve"
    yield "\n".join(f"- {_serve(found)}" for found in verdicts)
    shown = ((v, v.record.deploy) for v in verdicts if v.shown)
    for command, where in _by_class(shown).items():
        yield f"Serve {where} with SGLang:"
        yield code(command)


def _serve(found: ClassVerdict) -> str:
    """Say what to serve on one class and what would change that."""
    at = found.verdict.situation
    needed = number(at.levers.needed_step_ms)
    if found.shown:
        return (
            f"**{found.category}: {found.name}** ({found.speed_up.value:.2f}x). It stops paying"
            f" below an accept length of {at.levers.break_even:.2f} or above {needed} ms a step."
        )
    if found.speed_up.value > 1:
        return (
            f"**{found.category}: plain decoding** until more prompts show that {found.name} pays:"
            f" {found.speed_up.value:.2f}x is not shown to differ from 1."
        )
    return (
        f"**{found.category}: plain decoding.** {found.name} pays from an accept length of"
        f" {at.levers.break_even:.2f} (now {at.accept_length:.2f}) or below {needed} ms a step"
        f" (now {number(at.step_ms)})."
    )


def details(comparison: Comparison, names: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Yield the appendix's Markdown blocks, from what `sections` takes."""
    yield from class_levers(class_verdicts(comparison, names))
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


def write_plan(found: Anatomy, title: str, decision: str, folder: Path, prefix: str = "") -> str:
    """Write the plan beside the report and return its file name.

    Args:
        found: The step to cut.
        title: What was compared.
        decision: The report's own line on what to invest in next.
        folder: The report's folder.
        prefix: Before the file's name, to tell comparisons apart.
    """
    text = "\n\n".join(plan_blocks(found, title, decision, f"{prefix}waterfall.png"))
    write_atomically(folder / f"{prefix}{PLAN}", text + "\n")
    return f"{prefix}{PLAN}"


def plan_blocks(found: Anatomy, title: str, decision: str, picture: str) -> Iterator[str]:
    """Yield the plan's Markdown blocks."""
    figures = found.measurement.overall
    yield f"# Make the verify step cheap: {title}"
    yield f"{decision} This plan is what the step can give."
    needed = found.accept_length * found.ms_per_token
    yield (
        f"{found.record.label} takes {number(found.step_ms)} ms a step and commits"
        f" {found.accept_length:.2f} tokens: {number(figures.tok_s.value)} tok/s against"
        f" {number(1000 / found.ms_per_token)} of plain decoding. It breaks even at"
        f" {number(needed)} ms. Everything below is from this sweep's cells; what no cell shows"
        " is a bound and says so; speeds are at this accept length."
        + (OTHER_TURNS if found.scaled else "")
    )
    yield "## Where the milliseconds are"
    yield f"![From the measured step to the floor]({picture})"
    yield _parts_table(found)
    yield "## What to change, in this order"
    yield from _changes(found)
    yield "## When to stop"
    yield "\n".join(f"- {line}" for line in _stops(found, needed))


def _parts_table(found: Anatomy) -> str:
    """Write the parts, their share of the step, and what stays."""
    rows = [
        (
            part.name,
            f"measured: {part.basis}" if part.measured else part.basis,
            number(part.ms),
            percent(part.ms / found.step_ms),
        )
        for part in found.parts
    ]
    stays = found.step_ms - sum(part.ms for part in found.parts)
    rows.append(
        ("what stays: a plain forward", "the floor", number(stays), percent(stays / found.step_ms))
    )
    return table(("part", "shown by", "ms a step", "share"), rows, text=2)


def _changes(found: Anatomy) -> Iterator[str]:
    """Yield each change: what it removes, the speed after it, how to verify it."""
    ordered = in_order(found)
    if not ordered:
        yield "Nothing: the step is already a plain forward within the noise."
    for index, (part, step) in enumerate(ordered, start=1):
        speed = 1000 * found.accept_length / step
        times = found.accept_length * found.ms_per_token / step
        kind, after = ("removes", "") if part.measured else ("removes at most", " at best")
        inside = f" Its breakdown: {part.inside}." if part.inside else ""
        yield (
            f"{index}. **{part.change}** {kind} {number(part.ms)} ms ({part.name}).{inside}"
            f" After it{after}: step {number(step)} ms, {number(speed)} tok/s, {times:.2f}x plain"
            f" decoding. Verify: {part.proof}."
        )
        if part.command:
            yield code(part.command)


def _stops(found: Anatomy, needed: float) -> Iterator[str]:
    """Yield when more work on the step no longer pays."""
    reached = next((i for i, (_, s) in enumerate(in_order(found), 1) if s <= needed), None)
    if found.step_ms <= needed:
        yield f"The step is under {number(needed)} ms already: it pays, and each ms less pays more."
    elif reached:
        yield f"Change {reached} brings the step under {number(needed)} ms, where it breaks even."
    else:
        short = (found.step_ms - sum(p.ms for p in found.parts)) / found.ms_per_token
        yield (
            "No change of the step breaks even at this accept length; the drafter must reach"
            f" {short:.2f} even with all of them. Stop here."
        )
    if said := noise(found.record.repetitions):
        yield f"Noise of repeating, of tok/s: {said}. Repeat more before judging a smaller change."
    for name, figures in found.measurement.classes.items():
        if figures.versus is None:
            continue
        levers = figures.versus.levers
        if levers.accept_length < found.floor_ms / found.ms_per_token:
            yield f"On {name} not even the floor breaks even: decode plainly there."
        elif levers.step_ms > levers.needed_step_ms:
            yield f"On {name} stop at {number(levers.needed_step_ms)} ms: it breaks even there."
        else:
            paying = "pays today" if figures.versus.speed_up.low > 1 else "is not shown to lose"
            yield f"On {name} it {paying} ({figures.versus.speed_up.value:.2f}x)."
