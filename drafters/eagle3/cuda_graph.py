"""The captured draft on a GPU: a whole chain, draft-extend included, as one CUDA graph."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from drafters.base import TargetInfo
from drafters.eagle3.checkpoint import Head
from drafters.eagle3.model import finish, fuse, project, score
from drafters.eagle3.runner import EagerRunner

_WARM_UPS = 3  # libraries allocate their workspaces before the capture


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
        """Fill the inputs."""
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
        """Replay the capture over features, [N, 3 * H]; more rows than it takes go eagerly."""
        if len(tokens) > len(self.tokens):
            return super().chain(tokens, features, start, length)
        self.load(tokens, features, start)
        self._graph.replay()
        return [int(slot) for slot in self.slots.tolist()]
