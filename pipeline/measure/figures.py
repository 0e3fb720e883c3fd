"""A cell's measurement: its figures over all classes and per class, and how quiet it was."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Protocol

from pipeline.measure.prompts import (
    PromptResponses,
    by_prompt,
    decode_s,
    interval,
    looping_prompts,
    num_committed,
    num_steps,
    total,
)
from pipeline.measure.speed_up import Versus, versus
from pipeline.measure.statistics import Interval
from pipeline.record.record import CellRecord

NOISY_SHARE = 0.1  # on two cores, a fifth of one: two threads then wait for each other


@dataclass(frozen=True)
class Figures:
    """One cell's figures over a set of prompts.

    Attributes:
        num_prompts: Prompts that count, once each.
        num_verify_steps: Their verify steps, over all repetitions.
        tok_s: Decode tok/s: tokens committed after prefill over decode wall time.
        end_to_end_tok_s: All output tokens over prefill and decode wall time.
        time_to_first_token_ms: Mean wall time from the request to its first token.
        accept_length: Tokens committed per verify step, bonus included; 1.0 without a drafter.
        accept_length_per_request: Mean of the requests' own accept lengths, all weighing the same.
        accept_length_token_weighted: The same mean, each request weighing as its committed tokens.
        accept_rate: By draft position; see the function of this name.
        histogram: Item k - 1 counts the steps that committed k tokens, k from 1 to width.
        draft_hit_rate: Share of verify steps that had a draft.
        step_ms: Mean wall time of a step.
        verify_ms: Mean device time of a step's target forward (a baseline's `decode_ms`).
        draft_ms: Mean drafter's time of a step.
        versus: Against the best baseline; None where there is none.
    """

    num_prompts: int
    num_verify_steps: int
    tok_s: Interval
    end_to_end_tok_s: float
    time_to_first_token_ms: float
    accept_length: Interval
    accept_length_per_request: float
    accept_length_token_weighted: float
    accept_rate: tuple[float, ...]
    histogram: tuple[int, ...]
    draft_hit_rate: float
    step_ms: float
    verify_ms: float
    draft_ms: float
    versus: Versus | None

    @property
    def host_ms(self) -> float:
        """The rest of a step: `step_ms - verify_ms - draft_ms`."""
        return self.step_ms - self.verify_ms - self.draft_ms

    @property
    def speed_up(self) -> float:
        """What cells are compared by: tok/s may be of other hours. NaN without a baseline."""
        return self.versus.speed_up.value if self.versus else math.nan

    @property
    def plain_ms(self) -> float:
        """What a token of the best baseline took in the cell's own turns. NaN without one."""
        return self.versus.levers.ms_per_token if self.versus else math.nan

    def rescaled_to(self, plain_ms: float) -> Figures:
        """Rescale the decode figures to turns in which a plain token took `plain_ms` ms.

        Steps of different hours are not to be taken off each other; these are. What is no decode
        time, the end-to-end figures and the comparison itself, stays as it was.
        """
        factor = plain_ms / self.plain_ms
        return replace(
            self,
            tok_s=Interval(*(end / factor for end in self.tok_s)),
            step_ms=factor * self.step_ms,
            verify_ms=factor * self.verify_ms,
            draft_ms=factor * self.draft_ms,
        )

    @property
    def rank(self) -> tuple[bool, float]:
        """What the best cell of a class is chosen by: shown to gain first, then speed-up."""
        return bool(self.versus and self.versus.speed_up.low > 1), self.speed_up


def figures(prompts: Sequence[PromptResponses], width: int, against: Versus | None) -> Figures:
    """Compute the figures of at least one prompt that took a verify step."""
    responses = [r for p in prompts for r in p.responses]
    steps = sum(map(num_steps, responses))
    committed = Counter(count for r in responses for count in r.committed)
    decoded = [r for r in responses if num_steps(r)]
    lengths = [num_committed(r) / num_steps(r) for r in decoded]
    end_to_end_ms = sum(r.prefill_ms + r.decode_ms for r in responses)
    return Figures(
        num_prompts=len(prompts),
        num_verify_steps=steps,
        tok_s=interval(prompts, num_committed, decode_s),
        end_to_end_tok_s=1000 * sum(len(r.tokens) for r in responses) / end_to_end_ms,
        time_to_first_token_ms=fmean(r.prefill_ms for r in responses),
        accept_length=interval(prompts, num_committed, num_steps),
        accept_length_per_request=fmean(lengths),
        accept_length_token_weighted=fmean(lengths, weights=map(num_committed, decoded)),
        accept_rate=accept_rate(responses, width),
        histogram=tuple(committed[k] for k in range(1, width + 1)),
        draft_hit_rate=sum(count > 0 for r in responses for count in r.proposed) / steps,
        step_ms=total(prompts, lambda r: sum(r.step_ms)) / steps,
        verify_ms=total(prompts, lambda r: sum(r.verify_ms)) / steps,
        draft_ms=total(prompts, lambda r: sum(r.draft_ms)) / steps,
        versus=against,
    )


class Counted(Protocol):
    """What acceptance is counted from: a `Response`, or what is kept of one."""

    @property
    def committed(self) -> tuple[int, ...]:
        """Tokens committed by each verify step."""

    @property
    def depth(self) -> tuple[int, ...]:
        """Longest root-to-leaf path of each step's draft."""


def accept_rate(responses: Iterable[Counted], width: int) -> tuple[float, ...]:
    """Return, by draft position, the share of the steps that reached it in which it was accepted.

    Item i is about the draft token at depth i + 1. A step reached it if its draft is that deep and
    i draft tokens were accepted; it was accepted if more than i were. In a tree the depth is that
    of the deepest path, so a step whose accepted branch ended earlier counts as a rejection there.
    The last step of a response is cut by the stop, so whether the token after the last one that it
    committed was a draft is unknown: that position is not counted.

    Args:
        responses: Any number of responses.
        width: Rows of a verify step.

    Returns:
        `width - 1` shares; NaN at positions that no step reached.
    """
    reached, accepted = [0] * (width - 1), [0] * (width - 1)
    for response in responses:
        last = len(response.committed) - 1
        for step, (count, depth) in enumerate(zip(response.committed, response.depth, strict=True)):
            for position in range(min(count, depth, width - 1)):
                hit = count - 1 > position
                if hit or step != last:
                    reached[position] += 1
                    accepted[position] += hit
    return tuple(a / r if r else math.nan for a, r in zip(accepted, reached, strict=True))


@dataclass(frozen=True)
class Measurement:
    """All figures of one cell.

    Attributes:
        is_baseline: The cell decodes plainly.
        width: Rows of a verify step: draft tokens + 1.
        overall: Over all classes; its intervals draw prompts inside their class.
        classes: By workload class, in the workload's order. A class without a prompt that counts
            is missing.
        excluded: Ids of the cell's prompts that were left out because an arm looped, sorted.
        looping_share: Share of the cell's prompts whose own response ends in a loop.
        others_cpu_median: Share of the machine's CPU time that other processes used, median over
            responses; NaN where it cannot be read.
        others_cpu_max: The largest of these.
    """

    is_baseline: bool
    width: int
    overall: Figures
    classes: dict[str, Figures]
    excluded: tuple[str, ...]
    looping_share: float
    others_cpu_median: float
    others_cpu_max: float

    @property
    def noisy(self) -> bool:
        """Whether others used so much of the CPU, in the median, that times should be retaken."""
        return self.others_cpu_median > NOISY_SHARE


def measure(
    record: CellRecord, baseline: CellRecord | None, exclude: frozenset[str] = frozenset()
) -> Measurement:
    """Compute a cell's figures.

    Args:
        record: A cell with at least one repetition.
        baseline: The best baseline (`pipeline.judge.comparison` picks it), or None: then no
            speed-up is given.
        exclude: Ids of prompts that an arm of the comparison answered with a loop.

    Raises:
        ValueError: No prompt with a verify step is left.
    """
    prompts = by_prompt(record, exclude)
    if not prompts:
        raise ValueError(f"{record.label}: no prompt with a verify step is left to measure")
    plain = by_prompt(baseline, exclude) if baseline else []

    def of(chosen: list[PromptResponses]) -> Figures:
        against: Versus | None = None
        if baseline:
            against = versus(baseline.label, chosen, plain, record.width)
        return figures(chosen, record.width, against)

    categories = dict.fromkeys(p.category for p in prompts)
    responses = [r for repetition in record.repetitions for r in repetition]
    shares = [r.others_cpu for r in responses if r.others_cpu >= 0] or [math.nan]
    ids = {r.prompt_id for r in responses}
    return Measurement(
        is_baseline=record.is_baseline,
        width=record.width,
        overall=of(prompts),
        classes={name: of([p for p in prompts if p.category == name]) for name in categories},
        excluded=tuple(sorted(ids & exclude)),
        looping_share=len(looping_prompts(record)) / len(ids),
        others_cpu_median=median(shares),
        others_cpu_max=max(shares),
    )
