"""Reduce a cell, as one version ran it, to what is compared exactly and to its timed figures.

Timed figures are in ms side by side, and ratios within a run against what was recorded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from statistics import fmean, median
from typing import Any, TypeVar

from pipeline.cell.response import Response
from pipeline.record.record import CellRecord
from verify.base import Proof

ABSOLUTE = ": ms_per_token"  # the end of a figure's name that is not a ratio within a run


@dataclass(frozen=True)
class KeptResponse:
    """The exact part of a response: a greedy cell repeats it in every repetition.

    Attributes:
        tokens: Output token ids.
        margins: Best logit minus second best at each; empty if the engine has none.
        committed: Tokens committed by each verify step.
        depth: Longest root-to-leaf path of each step's draft.
    """

    category: str
    tokens: tuple[int, ...]
    margins: tuple[float, ...]
    committed: tuple[int, ...]
    depth: tuple[int, ...]


@dataclass(frozen=True)
class Times:
    """The times of one response.

    Attributes:
        verify_ms: Median device time of a step's target forward: one slow step does not move it.
        draft_ms: Mean of the drafter's time of a step.
        host_ms: Mean of the rest of a step.
        ms_per_token: Decode wall time over tokens committed: every slow step moves it.
    """

    verify_ms: float
    draft_ms: float
    host_ms: float
    ms_per_token: float


Pick = Callable[[Times], float]
VERIFY: Pick = attrgetter("verify_ms")
PER_TOKEN: Pick = attrgetter("ms_per_token")


@dataclass(frozen=True)
class Arm:
    """One cell as one version ran it.

    Attributes:
        label: The cell's name, unique in its grid.
        params: The cell's settings, flat.
        width: Rows of a verify step.
        settings: The settings as the engine resolved them.
        proof: The engine's own counts; its totals of steps are over all repetitions.
        answers: The exact part of each response, by prompt.
        times: The times of each response, by prompt, by repetition.
        fault: Why the cell is void; "" if it counts.
    """

    label: str
    params: dict[str, str]
    is_baseline: bool
    width: int
    settings: dict[str, str]
    proof: Proof
    answers: dict[str, KeptResponse]
    times: dict[str, tuple[Times, ...]]
    fault: str = ""

    @property
    def accept_length(self) -> float:
        """The tokens committed per verify step, bonus included, over all prompts."""
        return accept_length(self.answers.values())

    @property
    def verify_metric(self) -> str:
        """The name of its forward's time: plain decode verifies nothing."""
        return "decode_ms" if self.is_baseline else "verify_ms"


def accept_length(answers: Collection[KeptResponse]) -> float:
    """Return the tokens committed per verify step over some responses, bonus included."""
    steps = sum(len(a.committed) for a in answers)
    return sum(sum(a.committed) for a in answers) / steps if steps else 1.0


_Cell = TypeVar("_Cell", Arm, CellRecord)


def matching_plain(cell: _Cell, plain: Sequence[_Cell]) -> _Cell | None:
    """Choose a cell's plain-decode cell: the one of its verify backend, else the first."""
    same = [a for a in plain if a.params.get("verify") == cell.params.get("verify")]
    return next(iter(same or plain), None)


def arm(record: CellRecord, name: str, fault: str = "") -> Arm:
    """Reduce a cell's record to an arm, as far as the cell ran.

    Args:
        record: A cell whose engine has counted.
        name: The cell's name, unique in its grid (`pipeline.measure.wording.cell_names`).
        fault: Why it is void.
    """
    assert record.proof is not None
    once = record.repetitions[0] if record.repetitions else ()
    first = {r.prompt_id: r for r in once if r.committed}  # only these took a verify step
    by_prompt = {
        prompt: [r for whole in record.repetitions for r in whole if r.prompt_id == prompt]
        for prompt in first
    }
    return Arm(
        label=name,
        params=record.params,
        is_baseline=record.is_baseline,
        width=record.width,
        settings=record.settings,
        proof=record.proof,
        answers={
            prompt: KeptResponse(r.category, r.tokens, r.margins, r.committed, r.depth)
            for prompt, r in first.items()
        },
        times={prompt: tuple(map(times, repeated)) for prompt, repeated in by_prompt.items()},
        fault=fault,
    )


def times(response: Response) -> Times:
    """Reduce a response of one verify step or more to its times."""
    steps = len(response.committed)
    verify, draft = sum(response.verify_ms), sum(response.draft_ms)
    return Times(
        verify_ms=median(response.verify_ms),
        draft_ms=draft / steps,
        host_ms=(sum(response.step_ms) - verify - draft) / steps,
        ms_per_token=response.decode_ms / sum(response.committed),
    )


def as_json(cell: Arm) -> dict[str, Any]:
    """Return an arm as JSON takes it; margins and times to the digits that mean something."""
    data: dict[str, Any] = json.loads(json.dumps(asdict(cell)))
    for answer in data["answers"].values():
        answer["margins"] = [float(f"{m:.4g}") for m in answer["margins"]]
    data["times"] = {
        prompt: [{k: float(f"{v:.6g}") for k, v in each.items()} for each in repetitions]
        for prompt, repetitions in data["times"].items()
    }
    return data


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
