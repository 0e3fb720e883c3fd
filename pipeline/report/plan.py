"""`eagle-fast-verify.md`: what to change in which order, and when to stop, from a sweep's cells."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipeline.measure.statistics import noise
from pipeline.measure.wording import code, number, percent, table
from pipeline.record.record import write_atomically
from pipeline.roi.step_anatomy import Anatomy, Part

NAME = "eagle-fast-verify.md"
OTHER_TURNS = (
    " Cells were measured at different times, each beside the baseline again: times of other cells"
    " are scaled by it to this one's, so they differ from the report's tables."
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
    write_atomically(folder / f"{prefix}{NAME}", text + "\n")
    return f"{prefix}{NAME}"


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


def in_order(found: Anatomy) -> list[tuple[Part, float]]:
    """Return the changes by gain with the step time after each.

    Those that a cell shows come first, for they can be had today; bounds follow.
    """
    shown = sorted((p for p in found.parts if p.measured), key=lambda p: -p.ms)
    bounds = sorted((p for p in found.parts if not p.measured), key=lambda p: -p.ms)
    step, ordered = found.step_ms, []
    for part in [*shown, *bounds]:
        step -= part.ms
        ordered.append((part, step))
    return ordered


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
