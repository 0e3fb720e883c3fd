"""Load one rank's part of a checkpoint as plain matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pipeline.engine.torch.kv_cache import KVCache
from pipeline.engine.torch.llama import Llama
from pipeline.engine.torch.shards import Shard
from pipeline.engine.torch.weights import dense_weights

if TYPE_CHECKING:
    from pipeline.engine.torch.checkpoint import Checkpoint
    from pipeline.engine.torch.random_checkpoint import RandomCheckpoint


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
