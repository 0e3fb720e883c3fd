"""A cell's figures over a set of prompts: one workload class, or all of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

from pipeline.measure.speed_up import Versus
from pipeline.measure.statistics import Interval
from pipeline.measure.totals import (
    PromptResponses,
    decode_s,
    interval,
    num_committed,
    num_steps,
    total,
)


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
        ...

    @property
    def depth(self) -> tuple[int, ...]:
        """Longest root-to-leaf path of each step's draft."""
        ...


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
