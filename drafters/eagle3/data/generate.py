"""Let the target write: many sequences at once, those that ended make room for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drafters.eagle3.train.target import KV, Target

# When fewer than this share of a batch still writes, the cache is cut down to those that do.
WORTH_MOVING = 0.6
ALIGNED = 8  # slots of the cache, for the attention kernels
LONGEST_PERIOD = 32
REPEATS = 3  # periods of a loop that are kept, so that it is seen but not learnt by heart


@dataclass(frozen=True)
class Writing:
    """How the target writes.

    Attributes:
        max_new_tokens: Most tokens of a sequence, its stop token included.
        temperature: 0 is greedy.
        batch: Sequences at once.
    """

    max_new_tokens: int
    temperature: float
    batch: int


def write(
    target: Target,
    prompts: Sequence[tuple[int, ...]],
    writing: Writing,
    stops: frozenset[int],
    seed: int,
) -> list[list[int]]:
    """Return what the target writes after each prompt, stop token included where there is one.

    Args:
        target: The target.
        prompts: Token ids.
        writing: How.
        stops: Ids that end a sequence.
        seed: Of the draws; the same call gives the same text on the same device.
    """
    generator = torch.Generator(target.device).manual_seed(seed)
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    written: list[list[int]] = [[] for _ in prompts]
    for first in range(0, len(order), writing.batch):
        places = order[first : first + writing.batch]
        batch = _Batch(target, [prompts[place] for place in places], writing)
        for place, tokens in zip(places, batch.run(stops, generator), strict=True):
            written[place] = tokens
    return written


class _Batch:
    """Prompts of similar length, padded on the left, that are written to together."""

    def __init__(
        self, target: Target, prompts: Sequence[tuple[int, ...]], writing: Writing
    ) -> None:
        self._target, self._writing = target, writing
        self._length = max(map(len, prompts))
        pads = [self._length - len(prompt) for prompt in prompts]
        rows = [[0] * pad + list(prompt) for pad, prompt in zip(pads, prompts, strict=True)]
        self._tokens = torch.tensor(rows, device=target.device)
        self._pads = torch.tensor(pads, device=target.device)

    def run(self, stops: frozenset[int], generator: torch.Generator) -> list[list[int]]:
        """Write until every sequence has ended; return the new tokens of each."""
        target, most = self._target, self._writing.max_new_tokens
        capacity = -(-(self._length + most) // ALIGNED) * ALIGNED
        logits, cache = target.prefill(self._tokens, self._pads, capacity)
        step = self._step(cache, self._length)
        ends = torch.tensor(sorted(stops), device=target.device)
        out = torch.zeros(len(self._tokens), most, dtype=torch.int64, device=target.device)
        counts = torch.full((len(out),), most, device=target.device)
        rows = torch.arange(len(out), device=target.device)  # of `out`, for the cache's sequences
        writes = torch.ones_like(rows, dtype=torch.bool)
        for place in range(most):
            tokens = self._choose(logits, generator)
            out[rows[writes], place] = tokens[writes]
            ended = writes & torch.isin(tokens, ends)
            counts[rows[ended]] = place + 1
            writes &= ~ended
            if place + 1 == most or not bool(writes.any()):
                break
            if float(writes.float().mean()) < WORTH_MOVING:
                del step  # a graph holds the cache that is replaced
                rows, tokens, cache = self._keep(writes, rows, tokens, cache)
                writes = torch.ones_like(rows, dtype=torch.bool)
                step = self._step(cache, self._length + place)
            logits = step(tokens, self._length + place)
        return [row[:count] for row, count in zip(out.tolist(), counts.tolist(), strict=True)]

    def _step(self, cache: KV, length: int) -> Callable[[Tensor, int], Tensor]:
        """Return the batch's step: captured on a GPU, where launching costs more than computing."""
        if self._target.device.type == "cuda":
            from drafters.eagle3.train.target import GraphStep

            return GraphStep(self._target, self._pads, cache, length)
        return lambda tokens, length: self._target.step(tokens, self._pads, cache, length)

    def _keep(
        self, writes: Tensor, rows: Tensor, tokens: Tensor, cache: KV
    ) -> tuple[Tensor, Tensor, KV]:
        """Leave only the sequences that still write."""
        kept = writes.nonzero().flatten()
        self._pads = self._pads[kept]
        return rows[kept], tokens[kept], cache.take(kept)

    def _choose(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Return the next token of each sequence, [B]."""
        if self._writing.temperature == 0:
            return logits.argmax(dim=-1)
        probs = (logits.float() / self._writing.temperature).softmax(dim=-1)
        return torch.multinomial(probs, 1, generator=generator).flatten()


def without_loop(tokens: list[int]) -> list[int]:
    """Return a text cut where it starts to repeat itself to its end.

    A small target at temperature 0 often ends in a loop. Learning it by heart would count as data
    and teach nothing.
    """
    for period in range(1, LONGEST_PERIOD + 1):
        same = 0
        while same + period < len(tokens) and tokens[-1 - same] == tokens[-1 - same - period]:
            same += 1
        if same >= REPEATS * period and same >= LONGEST_PERIOD:
            return tokens[: len(tokens) - same + (REPEATS - 1) * period]
    return tokens
