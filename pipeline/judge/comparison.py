"""Which cells count: faults of a cell by itself, baselines, exclusions and voids of a comparison.

Where an identity that must hold of any cell does not, its figures are wrong and the cell is void.
The rest is decided over all cells of a comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.cell.response import Response
from pipeline.judge.lossless import Losslessness, compare_outputs
from pipeline.measure import Measurement, measure
from pipeline.measure.prompts import by_prompt, looping_prompts
from pipeline.record.record import CellRecord, Status

IDENTITY_TOLERANCE = 0.03  # tok/s from the request's clock against the steps' own clocks
SPEED_UP_TOLERANCE = 0.02
MOST_LOOPING = 0.5


@dataclass(frozen=True)
class Comparison:
    """The judged cells of one comparison: same target, engine, workload and sampling.

    Attributes:
        records: The cells in the given order; those that fail a check are void, with the reason.
        best: The best baseline: the fastest `none` cell that counts, or None. Where cells were
            measured in groups and a `none` cell as fast as that took turns with more of them, it is
            that one.
        exclude: Prompts that loop in any arm that counts; left out of every arm alike.
        measurements: By cell id, of every cell that counts.
        lossless: By cell id, of every greedy cell that was compared.
        not_interleaved: Ids of cells that count and are known not to have taken turns with the best
            baseline.
    """

    records: tuple[CellRecord, ...]
    best: CellRecord | None
    exclude: frozenset[str]
    measurements: dict[str, Measurement]
    lossless: dict[str, Losslessness]
    not_interleaved: frozenset[str] = frozenset()


def judge(records: Sequence[CellRecord]) -> list[CellRecord]:
    """Return the cells in their order, those that fail a check marked void with the reason."""
    judged = {r.cell_id: r for comparison in compare(records) for r in comparison.records}
    return [judged[record.cell_id] for record in records]


def compare(records: Sequence[CellRecord]) -> list[Comparison]:
    """Judge and measure cells, grouped by what they share, in the order of first appearance.

    A cell is void if its counts or times contradict each other, if its greedy output differs from
    plain decode's without a near tie, or if more than half of its prompts loop. A void cell is no
    baseline, and its loops exclude no other cell's prompts. A speed-up is against the best baseline
    as it was measured in the cell's own turns, where it was (`paired_baseline`).
    """
    groups: dict[str, list[CellRecord]] = {}
    for record in records:
        groups.setdefault(record.comparison, []).append(record)
    return [_compare(group) for group in groups.values()]


def _compare(group: Sequence[CellRecord]) -> Comparison:
    """Judge the cells of one comparison: alone, then against each other, then by speed."""
    cells = {r.cell_id: _void(r, own_fault(r)) for r in group}
    lossless = _check_outputs(cells)
    exclude = frozenset[str]().union(*(looping_prompts(r) for r in _ok(cells)))
    prompts = {p.prompt_id for r in _ok(cells) for p in r.repetitions[0]}
    if len(exclude) > MOST_LOOPING * len(prompts):
        reason = f"{len(exclude)} of {len(prompts)} prompts loop in one arm or another"
        cells |= {r.cell_id: _void(r, reason) for r in _ok(cells)}
    reason = "no prompt with a verify step is left beside those that loop"
    cells |= {r.cell_id: _void(r, reason) for r in _ok(cells) if not by_prompt(r, exclude)}
    best = _best_baseline(_ok(cells), exclude)
    measurements = {}
    for record in _ok(cells):
        measurement = measure(record, best and paired_baseline(record, best), exclude)
        cells[record.cell_id] = _void(record, speed_fault(measurement))
        if cells[record.cell_id].status is Status.OK:
            measurements[record.cell_id] = measurement
    away = frozenset(r.cell_id for r in _ok(cells) if best is not None and not_interleaved(r, best))
    return Comparison(tuple(cells.values()), best, exclude, measurements, lossless, away)


def _void(record: CellRecord, reason: str) -> CellRecord:
    """Mark a cell that counts as void, if there is a reason."""
    if record.status is Status.OK and reason:
        return record.ended(Status.VOID, reason)
    return record


def _ok(cells: dict[str, CellRecord]) -> list[CellRecord]:
    """Return the cells that count."""
    return [r for r in cells.values() if r.status is Status.OK]


def _check_outputs(cells: dict[str, CellRecord]) -> dict[str, Losslessness]:
    """Compare greedy outputs, baselines first, and void in place the cells that differ."""
    results = {}
    for record in sorted(_ok(cells), key=lambda r: not r.is_baseline):
        if record.greedy:
            result = compare_outputs(record, *_reference(record, _ok(cells)))
            results[record.cell_id] = result
            cells[record.cell_id] = _void(record, result.reason)
    return results


def _reference(record: CellRecord, cells: Sequence[CellRecord]) -> tuple[CellRecord | None, bool]:
    """Return the cell whose output a cell must repeat, and whether that proves it lossless.

    For a speculative cell: plain decode under the same verify backend. Without it nothing is
    proven, and the cell is held against another one of its backend, else against the fastest plain
    decode. For a baseline: one whose steps are eager, since capture and fusion are what may have
    broken the others.
    """
    others = [r for r in cells if r.cell_id != record.cell_id and r.greedy]
    plain = [r for r in others if r.is_baseline]
    if record.is_baseline:
        return next((r for r in plain if not r.abilities.captures_verify), None), True
    same = [r for r in others if r.params["verify"] == record.params["verify"]]
    if proof := next((r for r in same if r.is_baseline), None):
        return proof, True
    return next(iter(same), _best_baseline(plain, frozenset())), False


def _best_baseline(cells: Sequence[CellRecord], exclude: frozenset[str]) -> CellRecord | None:
    """Return the fastest plain-decode cell.

    A nearly equal one goes before it if more drafted cells took turns with that: what the two
    differ by is less than what a machine may change between groups.
    """
    plain = [r for r in cells if r.is_baseline]
    if not plain:
        return None
    fastest = max(plain, key=lambda r: measure(r, None, exclude).overall.tok_s.value)
    drafted = [r for r in cells if not r.is_baseline]
    beside_it = {r.cell_id: sum(not not_interleaved(d, r) for d in drafted) for r in plain}
    more = [r for r in plain if beside_it[r.cell_id] > beside_it[fastest.cell_id]]
    equal = [r for r in more if _nearly_equal(fastest, r, exclude)]
    return max(equal, key=lambda r: beside_it[r.cell_id], default=fastest)


def _nearly_equal(fastest: CellRecord, other: CellRecord, exclude: frozenset[str]) -> bool:
    """Say whether plain decode gains no more from the faster cell than a check would let pass."""
    versus = measure(fastest, paired_baseline(fastest, other), exclude).overall.versus
    return versus is not None and versus.speed_up.value <= 1 + SPEED_UP_TOLERANCE


def paired_baseline(record: CellRecord, best: CellRecord) -> CellRecord:
    """Return the best baseline as it was measured in a cell's own turns, if it was, else as it is.

    A cell that was interrupted may have turns with the baseline itself and with its control.
    """
    control = record.control if record.control_id == best.cell_id else ()
    own = best.repetitions if not control or interleaved(record, best) else ()
    return replace(best, repetitions=(*own, *control))


def not_interleaved(record: CellRecord, best: CellRecord) -> bool:
    """Say whether a cell is known to be compared with a baseline of another time."""
    noted = bool(record.group_starts and best.group_starts)
    return noted and not interleaved(record, best) and record.control_id != best.cell_id


def interleaved(record: CellRecord, other: CellRecord) -> bool:
    """Say whether two cells took turns."""
    return not set(record.group_starts).isdisjoint(other.group_starts)


def own_fault(record: CellRecord) -> str:
    """Say what is wrong with a cell by itself, or ""."""
    return count_fault(record) or _time_fault(record) or loop_fault(record)


def count_fault(record: CellRecord) -> str:
    """Say which counts of a cell contradict each other, or ""; times are not looked at."""
    responses = [r for repetition in record.repetitions for r in repetition]
    if not any(r.committed for r in responses):
        return "no verify step ran"
    faults = (f"prompt {r.prompt_id}: {f}" for r in responses if (f := _count_fault(r, record)))
    return next(faults, "")


def _count_fault(response: Response, record: CellRecord) -> str:
    """Say which counts of a response contradict each other, or ""."""
    steps = {len(getattr(response, name)) for name in ("committed", "proposed", "depth")}
    steps |= {len(getattr(response, name)) for name in ("step_ms", "verify_ms", "draft_ms")}
    if len(steps) > 1:
        return f"counts and times are of {' and '.join(map(str, sorted(steps)))} verify steps"
    if sum(response.committed) != len(response.tokens) - 1:
        return (
            f"verify steps committed {sum(response.committed)} tokens of the"
            f" {len(response.tokens) - 1} after prefill"
        )
    counts = zip(response.committed, response.depth, response.proposed, strict=True)
    for committed, depth, proposed in counts:
        if not 1 <= committed <= depth + 1 <= proposed + 1 <= record.width:
            return (
                f"a step committed {committed} tokens with {proposed} draft tokens, {depth} deep,"
                f" at width {record.width}"
            )
    return ""


def _time_fault(record: CellRecord) -> str:
    """Say which times and counts of a whole cell contradict each other, or ""."""
    figures = measure(record, None).overall
    steps = figures.num_verify_steps
    if record.proof and record.proof.request_steps < steps:
        return f"the engine proves {record.proof.request_steps} verify steps of {steps}"
    implied = figures.tok_s.value * figures.step_ms / 1000 / figures.accept_length.value
    if abs(implied - 1) > IDENTITY_TOLERANCE:
        return (
            f"tok/s × step time is {implied:.2f} of accept length, must be 1 within 3 %:"
            " time is spent outside the steps or counted twice"
        )
    if figures.host_ms < -IDENTITY_TOLERANCE * figures.step_ms:
        return f"verify and draft time exceed the step's {figures.step_ms:.2f} ms"
    return ""


def loop_fault(record: CellRecord) -> str:
    """Say that most of a cell's own responses loop, or ""."""
    looping = len(looping_prompts(record))
    total = len({r.prompt_id for r in record.repetitions[0]})
    if looping > MOST_LOOPING * total:
        return f"{looping} of {total} responses end in a loop: use other prompts or fewer tokens"
    return ""


def speed_fault(measurement: Measurement) -> str:
    """Say that a speed-up is not possible, or ""."""
    versus, length = measurement.overall.versus, measurement.overall.accept_length.value
    if versus is None or versus.speed_up.value <= length * (1 + SPEED_UP_TOLERANCE):
        return ""
    return (
        f"speed-up {versus.speed_up.value:.2f}x exceeds accept length {length:.2f}:"
        f" {versus.baseline} was slowed while it ran, or plain decode with this verify backend"
        " is missing"
    )
