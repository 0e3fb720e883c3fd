"""Compute a grid's timed figures: in ms side by side, as ratios within a run otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from statistics import fmean, median

from pipeline.gate.arm import Arm, Times, matching_plain

Pick = Callable[[Times], float]
ABSOLUTE = ": ms_per_token"  # the end of a figure's name that is not a ratio within a run
VERIFY: Pick = attrgetter("verify_ms")
PER_TOKEN: Pick = attrgetter("ms_per_token")


def typical(cell: Arm, pick: Pick) -> float:
    """Return the mean over prompts of the median over repetitions; NaN where nothing ran."""
    if not cell.times:
        return math.nan
    return fmean(median(map(pick, repeated)) for repeated in cell.times.values())


def ratios(arms: Sequence[Arm]) -> Iterator[tuple[str, list[list[float]]]]:
    """Yield the name of each ratio within a run, and its values by prompt, by repetition.

    The ratios of a speculative cell are its verify step over the plain-decode cell's step, and its
    ms per token over that cell's (the inverse of the speed-up). More is worse.
    """
    for cell in arms:
        plain = plain_of(cell, arms)
        if plain is None:
            continue
        for name, pick in (("verify_ms / decode_ms", VERIFY), ("ms_per_token / plain", PER_TOKEN)):
            yield f"{cell.label}: {name}", _ratio(cell, plain, pick)


def absolutes(arms: Sequence[Arm]) -> Iterator[tuple[str, list[list[float]]]]:
    """Yield each plain-decode cell's ms per token likewise: by prompt, by repetition."""
    for cell in arms:
        if cell.is_baseline:
            values = [[t.ms_per_token for t in repeated] for repeated in cell.times.values()]
            yield f"{cell.label}{ABSOLUTE}", values


def plain_of(cell: Arm, arms: Sequence[Arm]) -> Arm | None:
    """Return the plain-decode cell that a speculative one is divided by; None for one itself."""
    if cell.is_baseline:
        return None
    shared = ("target", "engine", "workload")
    plain = [
        a
        for a in arms
        if a.is_baseline and all(a.params.get(k) == cell.params.get(k) for k in shared)
    ]
    return matching_plain(cell, plain)


def _ratio(cell: Arm, plain: Arm, pick: Pick) -> list[list[float]]:
    """Divide two cells' times by prompt, repetition by repetition: the two were interleaved."""
    return [
        [pick(a) / pick(b) for a, b in zip(cell.times[p], plain.times[p], strict=False)]
        for p in cell.times
        if p in plain.times
    ]


def summary(arms: Sequence[Arm]) -> dict[str, float]:
    """Return each ratio's geometric mean over prompts, and 1 / accept length: more is worse."""
    found = {
        name: math.exp(fmean(math.log(median(row)) for row in rows))
        for name, rows in ratios(arms)
        if rows
    }
    lengths = {f"{a.label}: 1 / accept_length": 1 / a.accept_length for a in arms if a.answers}
    return found | {k: v for k, v in lengths.items() if v < 1}
