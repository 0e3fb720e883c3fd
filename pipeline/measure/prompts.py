"""Which prompts count, and sums over them as a function of how often each is drawn.

Responses whose tail is a loop flatter every drafter, so their prompts are left out. A small model
at temperature 0 often ends in a loop that only the length limit stops; an n-gram drafter then has
nearly every token accepted. Only exact repetition counts: a numbered list that says the same with
other numbers, a table, or code with similar lines is the model's honest output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pipeline.cell.response import Response
from pipeline.measure.statistics import Floats, Interval, bootstrap
from pipeline.record.record import CellRecord

Amount: TypeAlias = Callable[[Response], float]
MIN_PERIODS = 3  # twice may be a chorus, a quotation or a repeated line of code
MIN_TOKENS = 24  # a rule, an indent or a row of zeros may repeat a few tokens often


@dataclass(frozen=True)
class PromptResponses:
    """One prompt's responses, one per repetition."""

    id: str
    category: str
    responses: tuple[Response, ...]

    def total(self, amount: Amount) -> float:
        """Sum an amount over the repetitions."""
        return sum(amount(response) for response in self.responses)


def by_prompt(record: CellRecord, exclude: frozenset[str]) -> list[PromptResponses]:
    """Return the prompts that count, in the workload's order.

    Those in `exclude` and those without any verify step do not.
    """
    grouped: dict[str, list[Response]] = {}
    for responses in record.repetitions:
        for response in responses:
            grouped.setdefault(response.prompt_id, []).append(response)
    prompts = [PromptResponses(key, rs[0].category, tuple(rs)) for key, rs in grouped.items()]
    return [p for p in prompts if p.id not in exclude and p.total(num_steps) > 0]


def num_committed(response: Response) -> int:
    """Tokens that verify steps committed."""
    return sum(response.committed)


def num_steps(response: Response) -> int:
    """Verify steps."""
    return len(response.committed)


def decode_s(response: Response) -> float:
    """Decode wall time in seconds."""
    return response.decode_ms / 1000


def total(prompts: Iterable[PromptResponses], amount: Amount) -> float:
    """Sum an amount over prompts and repetitions."""
    return sum(prompt.total(amount) for prompt in prompts)


def ratio(
    prompts: Sequence[PromptResponses], top: Amount, bottom: Amount
) -> Callable[[Floats], Floats]:
    """Return a ratio of sums as a function of the prompts' weights, [B, P] to [B]."""
    tops = np.array([p.total(top) for p in prompts], dtype=np.float64)
    bottoms = np.array([p.total(bottom) for p in prompts], dtype=np.float64)
    return lambda weights: (weights @ tops) / (weights @ bottoms)


def interval(prompts: Sequence[PromptResponses], top: Amount, bottom: Amount) -> Interval:
    """Return a ratio of sums with its interval over prompts."""
    return bootstrap(ratio(prompts, top, bottom), [p.category for p in prompts])


def loop_period(tokens: Sequence[int]) -> int:
    """Return the period of the loop at the end, in tokens, or 0 if the end is no loop.

    A loop is at least `MIN_PERIODS` exact periods that cover at least `MIN_TOKENS` tokens and
    reach the last token.
    """
    for period in range(1, len(tokens) // MIN_PERIODS + 1):
        length = period
        while length < len(tokens) and tokens[-length - 1] == tokens[period - length - 1]:
            length += 1
            if length >= max(MIN_TOKENS, MIN_PERIODS * period):
                return period
    return 0


def looping_prompts(record: CellRecord) -> frozenset[str]:
    """Return the ids of the prompts whose response ends in a loop in any repetition.

    The stop token of a response that ended by itself is not part of the tail. Where the accept
    length is held, no text is the target's and none is looked at.
    """
    if record.held_accept_length:
        return frozenset()
    return frozenset(
        response.prompt_id
        for responses in record.repetitions
        for response in responses
        if loop_period(response.tokens[:-1] if response.finish == "stop" else response.tokens)
    )
