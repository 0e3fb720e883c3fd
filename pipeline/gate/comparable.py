"""Decide whether two runs of a grid may be compared; list every reason against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipeline.gate.arm import Arm

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
    for key in (k for k in ours if k in theirs):
        unequal += [
            f"{ours[key].label}: {x}" for x in _differences(ours[key], theirs[key], recorded)
        ]
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


def notes(candidate: Sequence[Arm], reference: Sequence[Arm]) -> list[str]:
    """Return the differences that are allowed side by side: package versions, kernels."""
    allowed: dict[str, None] = {}
    for ours, theirs in pairs(candidate, reference):
        allowed |= dict.fromkeys(_changes(VERSIONS, ours.settings, theirs.settings))
        for name in ("linear", "attention"):
            was, now = getattr(theirs.proof, name), getattr(ours.proof, name)
            if was != now:
                allowed[f"{ours.label}: {name} is now {now!r}, was {was!r}"] = None
    return list(allowed)
