"""List every reason against cells: void, not to be compared, not to become a reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipeline.gate.arm import Arm, matching_plain
from pipeline.judge.comparison import Comparison, compare, count_fault, loop_fault
from pipeline.judge.lossless import compare_outputs
from pipeline.measure.prompts import looping_prompts
from pipeline.record.record import CellRecord, Status

LEAST_GAIN = 0.05  # accepted tokens a step: a drafter of random tokens has none
MOST_LOOPING = 0.25  # share of prompts
# What the engine resolved and must be equal, wherever the two ran.
RESOLVED = {
    "target_digest": "model hash",
    "dtype": "dtype",
    "device": "device",
    "threads": "CPU threads (engine.threads fixes them)",
    "captured_batches": "captured batch sizes",
    "page_size": "page size",
    "attention": "attention backend",
    "weights": "weights",
}
# Versions: of a recorded reference they must be equal. Side by side both versions run here, and
# another version of a package is part of what is compared.
VERSIONS = {"torch": "torch version", "sglang": "SGLang version"}
# What a cell's settings may name differently without being another cell.
NOT_SETTINGS = (
    "prompts_digest",
    "target.source",
    "engine.python",
    "engine.threads",  # what they came to is compared
    "workload.note",  # words
    "workload.path",
)


def fault(record: CellRecord, contradiction: str, records: Sequence[CellRecord]) -> str:
    """Return why a cell's counts, label or output make it void; "" if they do not.

    Times void nothing: on a busy machine they contradict each other by themselves, and whether
    one is slower is decided by the statistics.

    Args:
        record: A cell as far as it ran.
        contradiction: How the engine's proof contradicts the cell's label.
        records: All cells of the same version.
    """
    if contradiction or not record.repetitions:
        return contradiction
    counts = count_fault(record) or loop_fault(record)
    return counts or compare_outputs(record, _plain(record, records)).reason or _steady(record)


def _plain(record: CellRecord, records: Sequence[CellRecord]) -> CellRecord | None:
    """Return the plain-decode record whose output this one must equal; None for one itself."""
    if record.is_baseline:
        return None
    plain = [
        r for r in records if r.is_baseline and r.comparison == record.comparison and r.repetitions
    ]
    return matching_plain(record, plain)


def _steady(record: CellRecord) -> str:
    """Return that a cell took other steps in a later repetition; "" if it did not."""
    first = {r.prompt_id: r.committed for r in record.repetitions[0]}
    for number, responses in enumerate(record.repetitions):
        for response in responses:
            if response.committed != first.get(response.prompt_id, response.committed):
                return (
                    f"prompt {response.prompt_id} took other steps in repetition {number} than in"
                    " the first: the cell does not repeat itself"
                )
    return ""


def refusals(
    arms: Sequence[Arm], records: Sequence[CellRecord], allow_below_break_even: bool
) -> list[str]:
    """Return every reason against recording a run as a reference, a line each.

    Args:
        arms: The run's cells; a failed cell has no arm.
        records: The run's records.
        allow_below_break_even: Accept cells in which drafting does not pay.
    """
    comparisons = compare(records)
    judged = [r for comparison in comparisons for r in comparison.records]
    reasons = [f"{r.label} is {r.status}: {r.reason}" for r in judged if r.status is not Status.OK]
    for cell in arms:
        reasons += [f"{cell.label} {reason}" for reason in _of_arm(cell)]
    reasons += [reason for r in records for reason in _loops(r)]
    if not allow_below_break_even:
        reasons += [reason for comparison in comparisons for reason in _break_even(comparison)]
    if not any(not cell.is_baseline for cell in arms):
        reasons.append("no cell drafts: give drafter=none,NAME, a reference is about speculation")
    return list(dict.fromkeys(reasons))


def _of_arm(cell: Arm) -> Iterator[str]:
    """Yield each reason against one cell by itself: cache, accept length, repetitions."""
    if cell.proof.cached_prompt_tokens:
        yield (
            f"took {cell.proof.cached_prompt_tokens} prompt tokens from the server's cache: turn"
            " the cache off (engine.extra_args must not enable it) and record again"
        )
    if not cell.is_baseline and cell.accept_length < 1 + LEAST_GAIN:
        yield (
            f"has accept length {cell.accept_length:.3f}, as a random drafter has: check"
            " drafter's checkpoint and its vocabulary map (python -m drafters.vocab audit)"
        )
    if not all(len(repeated) > 1 for repeated in cell.times.values()):
        yield "was measured once: set measurement.min_repetitions=3 or more"


def _loops(record: CellRecord) -> Iterator[str]:
    """Yield a line if too many responses end in a loop, which flatters every drafter."""
    total = len({r.prompt_id for repetition in record.repetitions for r in repetition})
    looping = len(looping_prompts(record))
    if looping > MOST_LOOPING * total:
        yield (
            f"{record.label} is degenerate: {looping} of {total} answers end in a loop; use other"
            " prompts (workload.seed) or a lower sampling.max_new_tokens"
        )


def _break_even(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each cell that is slower than the best baseline."""
    for record in comparison.records:
        measurement = comparison.measurements.get(record.cell_id)
        versus = measurement.overall.versus if measurement else None
        if versus and not record.is_baseline and versus.speed_up.value < 1:
            yield (
                f"{record.label} is below break-even ({versus.speed_up.value:.2f}x plain decoding):"
                " record it all the same with gate.allow_below_break_even=true"
            )


def differences(candidate: Sequence[Arm], reference: Sequence[Arm], recorded: bool) -> list[str]:
    """Return every reason why two runs of a grid cannot be compared; none if they can.

    Args:
        candidate: The tested version's cells.
        reference: The other version's cells.
        recorded: The reference is of another time: package versions and captures must be equal too.
    """
    theirs = {_identity(a): a for a in reference}
    ours = {_identity(a): a for a in candidate}
    unequal = [f"cell {ours[k].label}: the reference has none" for k in ours if k not in theirs]
    unequal += [f"cell {theirs[k].label}: the candidate has none" for k in theirs if k not in ours]
    for ours_too, theirs_too in pairs(candidate, reference):
        lines = _differences(ours_too, theirs_too, recorded)
        unequal += [f"{ours_too.label}: {line}" for line in lines]
    return unequal


def pairs(candidate: Sequence[Arm], reference: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Return each cell of both runs, the candidate's first."""
    theirs = {_identity(a): a for a in reference}
    return [(a, theirs[_identity(a)]) for a in candidate if _identity(a) in theirs]


def _identity(cell: Arm) -> tuple[str, ...]:
    """Return the names of a cell's parts: equal ones make two versions' cells one cell."""
    return cell.label, *(cell.params.get(k, "") for k in ("target", "engine", "workload"))


def _differences(ours: Arm, theirs: Arm, recorded: bool) -> Iterator[str]:
    """Yield a line for each difference between two cells that makes a comparison unfair."""
    if theirs.fault:
        yield f"the reference is void: {theirs.fault}"
    yield from _changes({"prompts_digest": "prompts"}, ours.params, theirs.params)
    if ours.width != theirs.width:
        yield f"width {ours.width}, the reference has {theirs.width}"
    shared = [k for k in ours.params if k in theirs.params and k not in NOT_SETTINGS]
    yield from _changes({k: f"setting {k}" for k in shared}, ours.params, theirs.params)
    names = RESOLVED | VERSIONS if recorded else RESOLVED
    yield from _changes(names, ours.settings, theirs.settings)
    if ours.proof.cached_prompt_tokens or theirs.proof.cached_prompt_tokens:
        yield (
            f"prompt tokens from the cache {ours.proof.cached_prompt_tokens},"
            f" the reference has {theirs.proof.cached_prompt_tokens}"
        )
    if recorded and ours.proof.capture != theirs.proof.capture:
        yield f"steps ran as {ours.proof.capture}, the reference's as {theirs.proof.capture}"


def _changes(
    names: Mapping[str, str], ours: Mapping[str, str], theirs: Mapping[str, str]
) -> Iterator[str]:
    """Yield a line for each of some named facts that differs."""
    for key, name in names.items():
        if ours.get(key) != theirs.get(key):
            yield f"{name} {ours.get(key, 'none')}, the reference has {theirs.get(key, 'none')}"


def notes(both: Sequence[tuple[Arm, Arm]]) -> list[str]:
    """Return the differences that are allowed side by side: package versions, kernels.

    Args:
        both: Each cell of candidate and reference.
    """
    allowed: dict[str, None] = {}
    for ours, theirs in both:
        allowed |= dict.fromkeys(_changes(VERSIONS, ours.settings, theirs.settings))
        for name in ("linear", "attention"):
            was, now = getattr(theirs.proof, name), getattr(ours.proof, name)
            if was != now:
                allowed[f"{ours.label}: {name} is now {now!r}, was {was!r}"] = None
    return list(allowed)
