"""Which part of a target each tensor-parallel rank holds; heads need not divide evenly.

Source: Shoeybi et al. 2019, https://arxiv.org/abs/1909.08053: queries, keys, values, gates and ups
are split by rows, the two products after them by columns, and the head by vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from verify.base import TargetShape

# Feed-forward columns move between ranks in these units: what the products' kernels read at once.
GRAIN = 32


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

    def of(self, tensor: Callable[[str], Tensor]) -> Callable[[str], Tensor]:
        """Return a loader of this rank's parts, given one of whole tensors by their names.

        A tied head is served under the head's own name: the embedding stays whole, since any rank
        may look up any token.
        """

        def part(name: str) -> Tensor:
            if name == "lm_head.weight" and self.shape.tie_word_embeddings:
                return _rows(tensor("model.embed_tokens.weight"), self.vocabulary, 1)
            return self._cut(name, tensor(name))

        return part

    def _cut(self, name: str, whole: Tensor) -> Tensor:
        """Return the rank's part of a tensor."""
        group, width = self.shape.num_heads // self.shape.num_kv_heads, self.shape.head_dim
        kind = name.split(".")[-2]
        if kind == "q_proj":
            return _rows(whole, self.kv_heads, group * width)
        if kind in ("k_proj", "v_proj"):
            return _rows(whole, self.kv_heads, width)
        if kind == "o_proj":
            return _rows(whole.T, self.kv_heads, group * width).T.contiguous()
        if kind in ("gate_proj", "up_proj"):
            return _rows(whole, self.columns, 1)
        if kind == "down_proj":
            return _rows(whole.T, self.columns, 1).T.contiguous()
        if kind == "lm_head":
            return _rows(whole, self.vocabulary, 1)
        return whole


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
    ends = [total * (rank + 1) // world for rank in range(world)]
    lengths = sorted(
        (end - begin for begin, end in zip([0, *ends], ends, strict=False)), reverse=True
    )
    begins = [sum(lengths[:rank]) for rank in range(world)]
    return [range(begin, begin + length) for begin, length in zip(begins, lengths, strict=True)]


def _rows(whole: Tensor, part: range, unit: int) -> Tensor:
    """Return a contiguous copy of rows, counted in units of `unit` rows."""
    return whole[part.start * unit : part.stop * unit].clone()
