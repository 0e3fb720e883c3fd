"""How a head's forward is run for one request: the seam, its eager torch form, and a CUDA graph."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from drafters.base import TargetInfo
from drafters.eagle3.checkpoint import Head
from drafters.eagle3.model import finish, fuse, project, rotary_table, score

_WARM_UPS = 3  # libraries allocate their workspaces before a capture
# N rows with features, W rows without, H hidden, D draft vocabulary, S slots


class Scored(NamedTuple):
    """The output of a forward of the head, by row.

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
        """Extend by [N, 3 * H] features, then follow the best slot `length` times; return them."""


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
        """Read rows with features, [N, 3 * H]; return the last one's state, [1, H], and scores."""
        count = len(tokens)
        mask = torch.ones(count, count, dtype=torch.bool).tril()
        hidden = fuse(self._weights, features.to(self.device, self._dtype))
        return self._score(self._forward(tokens, hidden, start, mask, outputs=1))

    def step(self, tokens: list[int], hidden: Tensor, start: int, mask: Tensor) -> Scored:
        """Run rows that go on from states, [W, H], under a mask, [W, T] bool."""
        return self._score(self._forward(tokens, hidden, start, mask, len(tokens)))

    def chain(self, tokens: list[int], features: Tensor, start: int, length: int) -> list[int]:
        """Extend by rows with features, [N, 3 * H], and follow the best slots."""
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


class StaticChain(EagerRunner):
    """A chain in shapes that depend on its length alone, so that it can be captured.

    Attributes:
        tokens: [R] int64, the new rows' tokens; R is a step's most rows.
        features: [R, 3 * H], the new rows' features. Rows past `count` hold anything: the chain
            overwrites what they write.
        start: [] int64, rows read before.
        count: [] int64, new rows.
        slots: [length] int64, the chain.
    """

    def __init__(self, head: Head, target: TargetInfo, capacity: int, length: int) -> None:
        """Allocate for chains of `length`; a step brings at most `length + 1` new rows."""
        super().__init__(head, target.embedding, capacity, target.dtype)
        rows, device = length + 1, self.device
        self._length = length
        self._ids_here = head.vocab.ids.to(device)
        self._places = torch.arange(capacity, device=device)
        self.tokens = torch.zeros(rows, dtype=torch.int64, device=device)
        width = 3 * head.shape.hidden_size
        self.features = torch.zeros(rows, width, dtype=target.dtype, device=device)
        self.start = torch.zeros((), dtype=torch.int64, device=device)
        self.count = torch.ones((), dtype=torch.int64, device=device)
        self.slots = torch.zeros(length, dtype=torch.int64, device=device)

    def load(self, tokens: list[int], features: Tensor, start: int) -> None:
        """Fill the inputs with N new rows; features are [N, 3 * H]."""
        count = len(tokens)
        self.tokens[:count] = torch.tensor(tokens, device=self.device)
        self.features[:count] = features
        self.start.fill_(start)
        self.count.fill_(count)

    def run(self) -> None:
        """Compute `slots` of the inputs."""
        rows = self.start + torch.arange(len(self.tokens), device=self.device)
        last = (self.count - 1).view(1)
        hidden = self._rows(self.tokens, fuse(self._weights, self.features), rows, last)
        for place in range(self._length):
            best = score(self._weights, self._shape, hidden).argmax(dim=-1)
            self.slots[place : place + 1] = best
            if place + 1 < self._length:
                row = (self.start + self.count + place).view(1)
                hidden = self._rows(self._ids_here[best], hidden, row, torch.zeros_like(last))

    def _rows(self, tokens: Tensor, hidden: Tensor, slots: Tensor, wanted: Tensor) -> Tensor:
        """Return the output state of the row `wanted`, [1, H]; write all rows' keys and values."""
        embeds = self._embedding[tokens].to(self._dtype)
        rotary = (self._cos[slots], self._sin[slots])
        query, key, value = project(self._weights, self._shape, embeds, hidden, rotary)
        self._keys.index_copy_(1, slots, key.transpose(0, 1))
        self._values.index_copy_(1, slots, value.transpose(0, 1))
        attended = functional.scaled_dot_product_attention(
            query[wanted].transpose(0, 1)[None],
            self._keys[None],
            self._values[None],
            attn_mask=(self._places <= slots[wanted])[None],
            enable_gqa=True,
        )
        flat = attended[0].transpose(0, 1).reshape(1, -1)
        return finish(self._weights, self._shape, flat, hidden[wanted])


class GraphRunner(StaticChain):
    """A head whose chains are replayed; prompts, trees and sampled chains run eagerly."""

    def __init__(self, head: Head, target: TargetInfo, capacity: int, length: int) -> None:
        """Capture the chain."""
        super().__init__(head, target, capacity, length)
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode():
            for _ in range(_WARM_UPS):
                self.run()
            with torch.cuda.graph(self._graph):
                self.run()

    def chain(self, tokens: list[int], features: Tensor, start: int, length: int) -> list[int]:
        """Replay the capture over features, [N, 3 * H]; a prompt, which is longer, runs eagerly."""
        if len(tokens) > len(self.tokens):
            return super().chain(tokens, features, start, length)
        self.load(tokens, features, start)
        self._graph.replay()
        return [int(slot) for slot in self.slots.tolist()]
