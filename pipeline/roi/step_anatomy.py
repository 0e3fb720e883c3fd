"""Take a speculative step apart by the sweep's own cells: what each part costs, what would save it.

`anatomy` picks the drafter that serves best. `exchanges` reads the parts off cells that differ in
the verify backend alone, `inside` off the breakdown of a step, and `rest` bounds what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from pipeline.judge.comparison import Comparison
from pipeline.measure import Measurement
from pipeline.measure.wording import number
from pipeline.record.record import CellRecord
from verify.breakdown import Breakdown

BOUND, INSIDE = "bound", "breakdown of the step"
LEAST = 0.01  # share of the step below which a part is noise, not a plan
MENTIONED = 0.1  # share of a part from which on it is said where else it lies
# What goes when the verify backend is exchanged for the next one: by what it begins to do.
CAPTURE, FUSE = "capture", "fuse"
GOES = {
    frozenset({CAPTURE}): "calls, launches and gaps of an eager forward",
    frozenset({CAPTURE, FUSE}): "calls, launches, gaps and unfused all-reduces",
    frozenset({FUSE}): "all-reduces with their residual add and norm apart",
}


@dataclass(frozen=True)
class Anatomy:
    """A step taken apart.

    Attributes:
        record: The cell whose step it is: the dearest backend of the drafter that serves best.
        measurement: Its figures.
        scaled: Whether other cells are of other turns, their times scaled by the baseline's there.
        parts: What can go, in the order of the cells that show it, then the bounds by size.
        floor_ms: What stays: a plain forward of the cheapest backend.
        accept_length: Tokens committed per step.
        ms_per_token: Wall time of a token of plain decoding at its best, in the cell's own turns.
    """

    record: CellRecord
    measurement: Measurement
    scaled: bool
    parts: tuple[Part, ...]
    floor_ms: float
    accept_length: float
    ms_per_token: float

    @property
    def step_ms(self) -> float:
        """The whole step."""
        return self.measurement.overall.step_ms


def anatomy(
    comparison: Comparison, breakdowns: Mapping[str, Breakdown] | None = None
) -> Anatomy | None:
    """Take apart the step of the drafter that serves best; None without baseline or drafter.

    Args:
        comparison: The judged cells.
        breakdowns: What is known of the inside of verify_ms, by cell id. Where the sweep has a
            cheaper backend, the difference to it is told, and the breakdown says what that is.
    """
    records = {r.cell_id: r for r in comparison.records}
    cells = [
        (records[key], m)
        for key, m in comparison.measurements.items()
        if not m.is_baseline and m.overall.versus
    ]
    if not cells or comparison.best is None:
        return None
    best, _ = max(cells, key=lambda cell: cell[1].overall.speed_up)
    chain = _chain(cells, best)
    record, measurement = chain[0]
    plain_ms = measurement.overall.plain_ms
    chain = [(r, _rescaled(m, plain_ms)) for r, m in chain]
    plain = [_rescaled(m, plain_ms) for m in comparison.measurements.values() if m.is_baseline]
    floor = min(m.overall.verify_ms for m in plain)
    known = {
        r.cell_id: breakdowns[r.cell_id].unslowed(m.overall.verify_ms)
        for r, m in chain
        if breakdowns and r.cell_id in breakdowns
    }
    if record.cell_id in known and len(chain) == 1:
        shown = list(inside(known[record.cell_id]))
        rows = measurement.overall.verify_ms - sum(p.ms for p in shown) - floor
        parts = [*shown, *rest(measurement, rows)]
    else:
        cheapest = chain[-1][1]
        parts = [*exchanges(chain, known), *rest(cheapest, cheapest.overall.verify_ms - floor)]
    least = LEAST * measurement.overall.step_ms
    return Anatomy(
        record,
        measurement,
        any(r.control for r, _ in chain),
        tuple(p for p in parts if p.ms > least),
        floor,
        measurement.overall.accept_length.value,
        plain_ms,
    )


def _rescaled(measurement: Measurement, plain_ms: float) -> Measurement:
    """Return a cell with its step as in turns in which a plain token took `plain_ms`."""
    return replace(measurement, overall=measurement.overall.rescaled_to(plain_ms))


def _chain(
    cells: list[tuple[CellRecord, Measurement]], best: CellRecord
) -> list[tuple[CellRecord, Measurement]]:
    """Return the best drafter's cells from the dearest step to the cheapest."""
    same = [
        (r, m)
        for r, m in cells
        if (r.params["drafter"], r.width) == (best.params["drafter"], best.width)
    ]
    return sorted(same, key=lambda cell: -cell[1].overall.step_ms / cell[1].overall.plain_ms)


@dataclass(frozen=True)
class Part:
    """One share of the step.

    Attributes:
        name: What the time is spent on.
        ms: How much, per step.
        change: What removes it.
        proof: How to see that it is gone.
        basis: What shows it: a cell's label, the breakdown of the step, or `bound`.
        command: The command that runs the cell that shows it, or "".
        inside: What is known of its inside, or "".
    """

    name: str
    ms: float
    change: str
    proof: str
    basis: str
    command: str = ""
    inside: str = ""

    @property
    def measured(self) -> bool:
        """Whether something measured shows it."""
        return self.basis != BOUND


def exchanges(
    chain: list[tuple[CellRecord, Measurement]], breakdowns: Mapping[str, Breakdown]
) -> Iterator[Part]:
    """Yield what each cheaper verify backend of the sweep takes away."""
    for (dear, before), (cheap, after) in pairwise(chain):
        names = (dear.params["verify"], cheap.params["verify"])
        begins = _does(cheap) - _does(dear) if _does(dear) <= _does(cheap) else frozenset()
        what = GOES.get(begins, f"what {names[0]} pays beyond {names[1]}")
        proof = f"the report's share of captured steps is {int(cheap.abilities.captures_verify)}"
        if cheap.abilities.fuses_allreduce:
            proof = "the trace names the fused kernel; no log line proves it"
            if cheap.proof and cheap.proof.capture == "native_plan":
                proof = "the report's all-reduces a step are fused ones, as the kernel counted them"
        yield Part(
            what + _other_sum(dear, cheap) + _while_drafting(before, after),
            before.overall.step_ms - after.overall.step_ms,
            f"verify={names[1]} instead of {names[0]}",
            f"{proof}; step_ms of the new cell",
            cheap.label,
            cheap.command,
            _traced(dear, breakdowns),
        )


def _does(cell: CellRecord) -> frozenset[str]:
    """Return what a cell's verify backend does for a cheaper step."""
    does = {CAPTURE: cell.abilities.captures_verify, FUSE: cell.abilities.fuses_allreduce}
    return frozenset(what for what, done in does.items() if done)


def _while_drafting(before: Measurement, after: Measurement) -> str:
    """Say how much of it is not verify time: a backend may run the drafter in its own way too."""
    gone = before.overall.step_ms - after.overall.step_ms
    beside = gone - before.overall.verify_ms + after.overall.verify_ms
    return f"; {number(beside)} ms of it while drafting" if beside > MENTIONED * gone else ""


def _traced(dear: CellRecord, breakdowns: Mapping[str, Breakdown]) -> str:
    """Say what the breakdown of an eager step shows that capturing it removes."""
    found = breakdowns.get(dear.cell_id)
    if found is None or dear.abilities.captures_verify:
        return ""
    parts = {"idle between launches": found.launch, "waiting for a late rank": found.wait}
    told = [f"{number(ms)} ms {what}" for what, ms in parts.items() if ms > LEAST * found.total]
    return " and ".join(told)


def _other_sum(dear: CellRecord, cheap: CellRecord) -> str:
    """Say so where the two backends also sum over ranks by different libraries."""
    ways = [cell.proof.allreduce for cell in (dear, cheap) if cell.proof]
    if len(ways) < 2 or ways[0] == ways[1] or "none" in ways or ways[1] == "fused":
        return ""
    return f", and all-reduces by {ways[0]} instead of {ways[1]}"


def inside(breakdown: Breakdown) -> Iterator[Part]:
    """Yield what the breakdown of the step shows: idle device, late ranks, dear all-reduces."""
    yield Part(
        "the device idle between launches",
        breakdown.launch,
        "capture the verify step in a graph",
        "the share of captured steps is 1 and launch is about 0 in a new breakdown",
        INSIDE,
    )
    yield Part(
        "all-reduces that wait for a late rank",
        breakdown.wait,
        "let all ranks start together: capture, no host work between layers, equal clocks",
        "wait is about 0 in a new breakdown; the floor is what `python -m verify.allreduce` says",
        INSIDE,
    )
    yield Part(
        "the all-reduces' own floor",
        breakdown.wire,
        "fuse them with residual add and norm where that wins at this width, or use fewer ranks",
        "the trace names the fused kernel, and verify_ms falls at this very width",
        BOUND,
    )


def rest(cheapest: Measurement, rows_ms: float) -> Iterator[Part]:
    """Yield the bounds on what the cheapest cell still pays beyond a plain forward."""
    figures = cheapest.overall
    bounds = [
        Part(
            f"{cheapest.width - 1} more rows than a plain forward",
            rows_ms,
            "fewer draft tokens: the last positions first, by their accept rate",
            "accept length falls by less than the step does",
            BOUND,
        ),
        Part(
            "drafting",
            figures.draft_ms,
            "capture the drafter, fuse its all-reduces, or draft with less",
            "draft_ms of the new cell",
            BOUND,
        ),
        Part(
            "host work between forwards",
            figures.host_ms,
            "overlap scheduling; keep acceptance and the next input on the device",
            "host_ms of the new cell; the baseline keeps its own overlap",
            BOUND,
        ),
    ]
    yield from sorted(bounds, key=lambda part: -part.ms)


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
