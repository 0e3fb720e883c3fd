"""Load a rank's part of a checkpoint and bind it to the forward, dense or packed as published.

Dense weights run on any device; packed ones stay in their blocks on a CPU, where the loader also
compiles the whole step. Loaders are picklable, since each rank loads its part in its own process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.engine.torch.kernels import Kernels, silu_and_multiply
from pipeline.engine.torch.llama import KVCache, Layer, Llama, Matrix, Weights, kernels_for
from pipeline.engine.torch.parallel.shards import Shard
from verify.base import TargetShape
from verify.native.build import load as load_native
from verify.native.packed import Linear, Packed
from verify.native.plan import Plan, memory_sizes
from verify.native.ranks import Place, RankMemory

if TYPE_CHECKING:
    from pipeline.target.checkpoint import Checkpoint
    from pipeline.target.random_checkpoint import RandomCheckpoint


# Tensors that the forward uses as one matrix, rows on top of each other.
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def dense_weights(
    shape: TargetShape,
    tensor: Callable[[str], Tensor],
    dtype: torch.dtype,
    device: torch.device,
    kernels: Kernels | None = None,
) -> Weights:
    """Return weights as plain matrices.

    Args:
        shape: The target's shape.
        tensor: Gives a matrix, [out, in], or a norm, [H], by its Hugging Face name.
        dtype: Type of the weights and of the residual stream.
        device: Where they go.
        kernels: What multiplies; by default the fastest for the device and type.
    """
    run = kernels or kernels_for(device, dtype)

    def load(name: str) -> Tensor:
        return tensor(name).to(device=device, dtype=dtype)

    def stacked(names: tuple[str, ...]) -> Tensor:
        return torch.cat([load(f"{name}.weight") for name in names])

    def matrix(*names: str) -> Matrix:
        return partial(run.linear, weight=stacked(names))

    def gated(*names: str) -> Matrix:
        return partial(run.gated, weight=stacked(names))

    embedding = load(EMBEDDING)
    head = embedding if shape.tie_word_embeddings else load(HEAD)
    return Weights(
        embedding=embedding,
        layers=_layers(shape, load, matrix, gated),
        norm=load(NORM),
        head=lambda x: run.logits(x, head),
        linear=f"{run.name} {str(dtype).removeprefix('torch.')}",
    )


def packed_weights(
    shape: TargetShape,
    tensor: Callable[[str], Tensor],
    packed: Mapping[str, Packed],
    library: ctypes.CDLL,
    threads: int,
) -> Weights:
    """Return weights whose matrices stay in their published blocks, unpacked inside the product.

    Norms, [H], and the embedding's rows that a step looks up, [V, H], are float32 tensors.
    """

    def matrix(*names: str) -> Matrix:
        return Linear(_stacked([packed[f"{name}.weight"] for name in names]), threads, library)

    def gated(*names: str) -> Matrix:
        both = matrix(*names)
        return lambda x: silu_and_multiply(both(x))

    head = packed[EMBEDDING if shape.tie_word_embeddings else HEAD]
    formats = sorted({block.fmt for block in packed.values()})
    return Weights(
        embedding=tensor(EMBEDDING),
        layers=_layers(shape, tensor, matrix, gated),
        norm=tensor(NORM),
        head=Linear(head, threads, library),
        linear=f"native {'+'.join(formats)} weights, float32 sums",
    )


def _layers(
    shape: TargetShape,
    vector: Callable[[str], Tensor],
    matrix: Callable[..., Matrix],
    gated: Callable[..., Matrix],
) -> tuple[Layer, ...]:
    """Return every layer's weights."""

    def layer(prefix: str) -> Layer:
        return Layer(
            input_norm=vector(f"{prefix}.input_layernorm.weight"),
            qkv=matrix(*(f"{prefix}.{name}" for name in QKV)),
            output=matrix(f"{prefix}.self_attn.o_proj"),
            post_norm=vector(f"{prefix}.post_attention_layernorm.weight"),
            gated=gated(*(f"{prefix}.{name}" for name in GATE_UP)),
            down=matrix(f"{prefix}.mlp.down_proj"),
        )

    return tuple(layer(f"model.layers.{number}") for number in range(shape.num_layers))


def _stacked(blocks: list[Packed]) -> Packed:
    """Return one matrix of the blocks' rows.

    Raises:
        ValueError: The blocks differ in format or width.
    """
    if len({(block.fmt, block.cols) for block in blocks}) != 1:
        raise ValueError("matrices that a layer uses as one differ in format or width")
    data = torch.cat([block.data for block in blocks])
    return Packed(blocks[0].fmt, data, len(data), blocks[0].cols)


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
        # Of several ranks' heads each is some rows, so a matrix of its own even where it is tied.
        weights = dense_weights(shard.own_shape, tensors, self.dtype, device)
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
        model.plan = self.plan(shard, packed, cache)
        return model

    def plan(self, shard: Shard, packed: Mapping[str, Packed], cache: KVCache) -> Plan:
        """Compile the whole forward of a rank over its blocks and cache.

        Raises:
            ValueError: There is no compiler, or the target's shape cannot be run.
        """
        names = (name for name in self.checkpoint.names if name not in packed)
        return Plan(
            shard.own_shape,
            {**{name: self.checkpoint.tensor(name) for name in names}, **packed},
            *(cache.keys, cache.values),
            threads=self.threads,
            max_width=self.width,
            capture_layers=self.capture_layers,
            library=load_native(self.cache_root),
            ranks=self._memory(shard),
        )

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
