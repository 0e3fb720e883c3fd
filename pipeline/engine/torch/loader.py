"""Load one rank's part of a checkpoint: plain matrices, or packed blocks and a compiled step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from pipeline.engine.torch.kv_cache import KVCache
from pipeline.engine.torch.llama import Llama
from pipeline.engine.torch.parallel.shards import Shard
from pipeline.engine.torch.weights import dense_weights, packed_weights
from verify.native.build import load as load_native
from verify.native.plan import Plan, memory_sizes
from verify.native.ranks import Place, RankMemory

if TYPE_CHECKING:
    from pipeline.target.checkpoint import Checkpoint
    from pipeline.target.random_checkpoint import RandomCheckpoint


@dataclass(frozen=True)
class DenseLoader:
    """What every rank needs to load its part by itself; picklable.

    Attributes:
        checkpoint: Where tensors come from; each rank reads whole tensors and keeps its parts.
        capacity: Slots of the cache.
        dtype: Type of weights, cache and residual stream.
        capture_layers: Layers whose inputs the drafter reads.
    """

    checkpoint: Checkpoint | RandomCheckpoint
    capacity: int
    dtype: torch.dtype
    capture_layers: tuple[int, ...] = ()

    def __call__(self, shard: Shard, device: torch.device) -> Llama:
        """Return the target with this rank's weights and cache."""
        shape = shard.shape
        tensors = shard.of(lambda name: self.checkpoint.tensor(name, device))
        # The head is this rank's rows, so it is a matrix of its own even where it is tied.
        untied = replace(shape, tie_word_embeddings=False)
        weights = dense_weights(untied, tensors, self.dtype, device)
        cache = KVCache(shape, self.capacity, self.dtype, device, len(shard.kv_heads))
        return Llama(shape, weights, cache, self.capture_layers)


@dataclass(frozen=True)
class PackedLoader:
    """The same for a CPU: weights stay in their published blocks, and the whole step is compiled.

    Attributes:
        checkpoint: Where tensors and blocks come from; each rank maps them and copies its parts.
        capacity: Slots of the cache.
        width: Most rows of a verify step.
        threads: Threads of one rank.
        cache_root: Where the compiled library is kept.
        capture_layers: Layers whose inputs the drafter reads.
    """

    checkpoint: Checkpoint
    capacity: int
    width: int
    threads: int
    cache_root: Path
    capture_layers: tuple[int, ...] = ()

    def __call__(self, shard: Shard, device: torch.device) -> Llama:
        """Return the target with this rank's weights, cache and plan."""
        shape, tensor = shard.own_shape, self.checkpoint.tensor
        whole = self.checkpoint.packed()
        assert whole is not None, "this target is not published in blocks"
        packed, library = shard.of_packed(whole), load_native(self.cache_root)
        cache = KVCache(shape, self.capacity, torch.float32, device, shape.num_kv_heads)
        weights = packed_weights(shape, tensor, packed, library, self.threads)
        model = Llama(shard.shape, weights, cache, self.capture_layers)
        norms = {name: tensor(name) for name in self.checkpoint.names if name not in whole}
        model.plan = Plan(
            shape,
            {**norms, **packed},
            cache.keys,
            cache.values,
            threads=self.threads,
            max_width=self.width,
            capture_layers=self.capture_layers,
            library=library,
            ranks=self._memory(shard),
        )
        return model

    def _memory(self, shard: Shard) -> RankMemory | None:
        """Meet the other ranks, if there are any, in memory that all of them map."""
        if shard.world == 1:
            return None
        place = Place(shard.rank, shard.world, shard.vocabulary)
        return RankMemory(place, memory_sizes(shard.shape, self.width), _shared, dist.all_reduce)


def _shared(path: str | None) -> str:
    """Return rank 0's path on every rank."""
    paths = [path]
    dist.broadcast_object_list(paths, src=0)
    assert paths[0] is not None
    return paths[0]
