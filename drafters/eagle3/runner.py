"""How a head's forward is run for one request: the seam, and the eager torch form of it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from drafters.eagle3.checkpoint import Head
from drafters.eagle3.model import finish, fuse, project, rotary_table, score

# N rows with features, W rows without, H hidden, D draft vocabulary, S slots


class Scored(NamedTuple):
    """What a forward says of its rows.

    Attributes:
        hidden: [W, H], the rows' output states, which the next rows start from.
        logits: [W, D] float32 on the CPU: the slots' scores.
    """

    hidden: Tensor
    logits: Tensor


class Runner(Protocol):
    """A head's forward with its key-value cache, batch 1."""

    def extend(self, tokens: list[int], features: Tensor, start: int) -> Scored:
        """Read rows with the target's features; return the last of them, [1, …].

        Args:
            tokens: N target token ids, each the successor of its row's features.
            features: [N, 3 * H] float32.
            start: Rows read before; row i goes to slot and position `start + i`.
        """

    def step(self, tokens: list[int], hidden: Tensor, start: int, mask: Tensor) -> Scored:
        """Run rows that go on from the head's own output.

        Args:
            tokens: W target token ids.
            hidden: [W, H], each row's parent's output state.
            start: Rows with features so far; all rows attend them.
            mask: [W, T] bool on the CPU: which of the T slots from `start` on a row attends. The
                rows themselves are the last W; a row's position is `start` plus the number of
                slots that it attends, minus one.
        """

    def chain(self, tokens: list[int], features: Tensor, start: int, length: int) -> list[int]:
        """Extend, then follow the best slot `length` times; return the slots."""


class EagerRunner:
    """The reference: torch operations, one after the other."""

    def __init__(self, head: Head, embedding: Tensor, capacity: int, dtype: torch.dtype) -> None:
        """Bind the weights on the embedding's device and allocate the cache.

        Args:
            head: The head.
            embedding: [V, H], the target's.
            capacity: S, the most rows, drafted ones included.
            dtype: To compute in.
        """
        self._shape, self._embedding = head.shape, embedding
        self.device, self._dtype = embedding.device, dtype
        self._weights = {k: v.to(self.device, dtype) for k, v in head.tensors.items()}
        self._ids = head.vocab.ids.tolist()
        table = rotary_table(capacity, head.shape)
        self._cos, self._sin = (part.to(self.device) for part in table)
        size = (head.shape.num_kv_heads, capacity, head.shape.head_dim)
        self._keys, self._values = (
            torch.zeros(size, dtype=dtype, device=self.device) for _ in range(2)
        )

    def extend(self, tokens: list[int], features: Tensor, start: int) -> Scored:
        """Read rows with features."""
        count = len(tokens)
        mask = torch.ones(count, count, dtype=torch.bool).tril()
        hidden = fuse(self._weights, features.to(self.device, self._dtype))
        return self._score(self._forward(tokens, hidden, start, mask, outputs=1))

    def step(self, tokens: list[int], hidden: Tensor, start: int, mask: Tensor) -> Scored:
        """Run rows without features."""
        return self._score(self._forward(tokens, hidden, start, mask, len(tokens)))

    def chain(self, tokens: list[int], features: Tensor, start: int, length: int) -> list[int]:
        """Extend and follow the best slots."""
        start += len(tokens)
        scored = self.extend(tokens, features, start - len(tokens))
        slots = [int(scored.logits[0].argmax())]
        while len(slots) < length:
            mask = torch.ones(1, len(slots), dtype=torch.bool)
            scored = self.step([self._ids[slots[-1]]], scored.hidden, start, mask)
            slots.append(int(scored.logits[0].argmax()))
        return slots

    def _forward(
        self, tokens: list[int], hidden: Tensor, start: int, mask: Tensor, outputs: int
    ) -> Tensor:
        """Return the last rows' output states, [outputs, H]; write all rows' keys and values."""
        shape, (width, seen) = self._shape, mask.shape
        first, end = start + seen - width, start + seen
        positions = (mask.sum(dim=1) - 1 + start).to(self.device)
        embeds = self._embedding[torch.tensor(tokens, device=self.device)].to(self._dtype)
        rotary = (self._cos[positions], self._sin[positions])
        query, key, value = project(self._weights, shape, embeds, hidden, rotary)
        self._keys[:, first:end] = key.transpose(0, 1)
        self._values[:, first:end] = value.transpose(0, 1)
        before = torch.ones(width, start, dtype=torch.bool)
        allowed = torch.cat((before, mask), dim=1).to(self.device)
        attended = functional.scaled_dot_product_attention(
            query[-outputs:].transpose(0, 1)[None],
            self._keys[None, :, :end],
            self._values[None, :, :end],
            attn_mask=allowed[-outputs:],
            enable_gqa=True,
        )
        flat = attended[0].transpose(0, 1).reshape(outputs, -1)
        return finish(self._weights, shape, flat, hidden[-outputs:])

    def _score(self, hidden: Tensor) -> Scored:
        return Scored(hidden, score(self._weights, self._shape, hidden).float().cpu())
