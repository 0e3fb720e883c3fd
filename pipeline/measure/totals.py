"""Sums per prompt, and their ratios as a function of how often each prompt is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from pipeline.cell.response import Response
from pipeline.measure.statistics import Floats, Interval, bootstrap
from pipeline.record.record import CellRecord

Amount: TypeAlias = Callable[[Response], float]


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
