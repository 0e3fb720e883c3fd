"""Which part of a target each tensor-parallel rank holds; heads need not divide evenly.

Source: Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053: queries, keys, values, gates and ups
are split by rows, the two products after them by columns, and the head by vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from verify.base import TargetShape
from verify.native.packed import Packed, part_of

# Feed-forward columns move between ranks in these units: what the products' kernels read at once.
GRAIN = 32


class _Cut(NamedTuple):
    """A range of a tensor's rows (axis 0) or columns (axis 1)."""

    axis: int
    range: range


@dataclass(frozen=True)
class Shard:
    """One rank's part; every range is contiguous.

    Attributes:
        rank: 0 to `world - 1`.
        world: Ranks.
        kv_heads: Key-value heads, each with its group of query heads.
        columns: Feed-forward columns.
        vocabulary: Rows of the head.
    """

    rank: int
    world: int
    shape: TargetShape
    kv_heads: range
    columns: range
    vocabulary: range

    @property
    def own_shape(self) -> TargetShape:
        """The shape of this rank's part: of several, fewer heads and columns, and its own head."""
        group = self.shape.num_heads // self.shape.num_kv_heads
        return replace(
            self.shape,
            num_heads=group * len(self.kv_heads),
            num_kv_heads=len(self.kv_heads),
            intermediate_size=len(self.columns),
            tie_word_embeddings=self.shape.tie_word_embeddings and self.world == 1,
        )

    def of(self, tensor: Callable[[str], Tensor]) -> Callable[[str], Tensor]:
        """Return a loader of this rank's parts of matrices, [out, in], given one of whole tensors.

        A matrix [out, in] loses the rows or columns that other ranks hold; a norm, [H], stays
        whole, and so does the embedding, since any rank may look up any token. A tied head is
        served under the head's own name.
        """

        def part(name: str) -> Tensor:
            whole, cut = tensor(self._source(name)), self._cut(name)
            if cut is None:
                return whole
            view = whole.narrow(cut.axis, cut.range.start, len(cut.range))
            return view.clone(memory_format=torch.contiguous_format)

        return part

    def of_packed(self, whole: Mapping[str, Packed]) -> dict[str, Packed]:
        """Return this rank's part of each packed matrix, the head under its own name.

        Raises:
            ValueError: A part would begin or end inside a block of packed weights.
        """
        names = dict.fromkeys((*whole, "lm_head.weight"))
        parts = {}
        for name in names:
            packed, cut = whole[self._source(name)], self._cut(name)
            parts[name] = packed if cut is None else part_of(packed, cut.axis, cut.range)
        return parts

    def _source(self, name: str) -> str:
        """Return the whole tensor that a part is cut from."""
        tied = name == "lm_head.weight" and self.shape.tie_word_embeddings
        return "model.embed_tokens.weight" if tied else name

    def _cut(self, name: str) -> _Cut | None:
        """Return which part of a tensor is the rank's; None is all of it."""
        group, width = self.shape.num_heads // self.shape.num_kv_heads, self.shape.head_dim
        first, last = self.kv_heads.start * width, self.kv_heads.stop * width
        queries, keys = range(first * group, last * group), range(first, last)
        cuts = {
            "q_proj": _Cut(0, queries),
            **dict.fromkeys(("k_proj", "v_proj"), _Cut(0, keys)),
            "o_proj": _Cut(1, queries),
            **dict.fromkeys(("gate_proj", "up_proj"), _Cut(0, self.columns)),
            "down_proj": _Cut(1, self.columns),
            "lm_head": _Cut(0, self.vocabulary),
        }
        return cuts.get(name.split(".")[-2]) if self.world > 1 else None


def shards(shape: TargetShape, world: int) -> tuple[Shard, ...]:
    """Split a target so that ranks read about equally many weights.

    A rank with more heads than others gets fewer feed-forward columns.

    Raises:
        ValueError: There are more ranks than key-value heads.
    """
    if world > shape.num_kv_heads:
        raise ValueError(
            f"parallelism.tp={world}: the target has {shape.num_kv_heads} key-value heads, and a"
            f" rank needs at least one; use at most {shape.num_kv_heads}"
        )
    heads = _even(shape.num_kv_heads, world)
    per_head = (2 * shape.num_heads // shape.num_kv_heads + 2) * shape.head_dim
    attention, column = [per_head * len(part) for part in heads], 3
    mean = (sum(attention) + column * shape.intermediate_size) / world
    columns, begin = [], 0
    for rank in range(world):
        wanted = round((mean - attention[rank]) / column / GRAIN) * GRAIN
        left = shape.intermediate_size - begin
        end = begin + (left if rank == world - 1 else min(left, max(GRAIN, wanted)))
        columns.append(range(begin, end))
        begin = end
    part = -(-shape.vocab_size // world)
    vocabulary = [
        range(min(rank * part, shape.vocab_size), min((rank + 1) * part, shape.vocab_size))
        for rank in range(world)
    ]
    return tuple(
        Shard(rank, world, shape, *parts)
        for rank, parts in enumerate(zip(heads, columns, vocabulary, strict=True))
    )


def _even(total: int, world: int) -> list[range]:
    """Return contiguous ranges whose lengths differ by one at most; the longer ones first."""
    length, longer = divmod(total, world)
    ends = [length * rank + min(rank, longer) for rank in range(world + 1)]
    return [range(begin, end) for begin, end in pairwise(ends)]
