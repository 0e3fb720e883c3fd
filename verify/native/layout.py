"""The C view of a target: pointers to its weights, and the fixed buffers behind a plan."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from verify.base import TargetShape
from verify.native.packed import CWeight, Packed, as_struct, check, pack
from verify.native.ranks import RankMemory
from verify.native.structs import PROJECTIONS, TOP_BYTES, CLayer, CPlan


class Room(NamedTuple):
    """How much a plan must hold.

    Attributes:
        threads: Threads of a step.
        max_rows: Most rows of one forward.
        max_logits: Most rows of one forward whose logits are wanted.
    """

    threads: int
    max_rows: int
    max_logits: int


class Layout:
    """The C structures of one target, and the memory they point to.

    Attributes:
        plan: The structure for `native_step`.
        logits: [max_logits, V] float32, written by each step.
        delta: [max_rows, H] float32, where a block's output goes that is summed by itself.
    """

    def __init__(
        self,
        shape: TargetShape,
        weights: Mapping[str, Packed | Tensor],
        caches: tuple[Tensor, Tensor],
        room: Room,
        captured: tuple[int, ...],
        ranks: RankMemory | None = None,
    ) -> None:
        """Check shapes and weights, and fix every pointer but those of the scratch.

        With `ranks`, shape and weights are this rank's part, and the head its rows of it.

        Raises:
            ValueError: A weight is missing or inconsistent, or the shape cannot be run.
        """
        check_shape(shape, caches, captured)
        self._weights, self._shape = weights, shape
        self._alive: list[object] = [weights, caches, ranks]
        self.plan = CPlan(
            *(shape.num_layers, shape.hidden_size, shape.intermediate_size, shape.num_heads),
            *(shape.num_kv_heads, shape.head_dim, shape.vocab_size, caches[0].shape[2]),
            *(room.threads, room.max_rows, len(captured), shape.rms_norm_eps),
        )
        self._point_to_weights(captured, len(ranks.place.vocabulary) if ranks else None)
        self._point_to_positions(caches)
        self.logits = ranks.logits if ranks else torch.empty(room.max_logits, shape.vocab_size)
        self.delta = torch.empty(room.max_rows, shape.hidden_size)
        self._point_to_buffers(room)
        self.plan.ranks = ranks.address if ranks else None

    def allocate_scratch(self, floats_per_thread: int) -> None:
        """Give each thread its own memory; the C code says how much."""
        self.plan.scratch = self._keep(torch.empty(self.plan.threads, floats_per_thread))

    def _keep(self, tensor: Tensor) -> int:
        self._alive.append(tensor)
        return tensor.data_ptr()

    def _matrix(self, name: str, rows: int, cols: int) -> CWeight:
        weight = self._named(name)
        packed = weight if isinstance(weight, Packed) else pack(weight)
        check(packed, name, (rows, cols))
        self._alive.append(packed)
        return as_struct(packed)

    def _norm(self, name: str) -> int:
        weight = self._named(name)
        if not isinstance(weight, Tensor) or weight.shape != (self._shape.hidden_size,):
            raise ValueError(f"{name}: a vector of {self._shape.hidden_size} is needed")
        return self._keep(weight.float().contiguous())

    def _named(self, name: str) -> Packed | Tensor:
        if name not in self._weights:
            raise ValueError(f"{name}: missing from the target's weights")
        return self._weights[name]

    def _layer(self, index: int) -> CLayer:
        shape, prefix = self._shape, f"model.layers.{index}."
        hidden, wide = shape.hidden_size, shape.intermediate_size
        queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        sizes = [(queries, hidden), (keys, hidden), (keys, hidden), (hidden, queries)]
        sizes += [(wide, hidden), (wide, hidden), (hidden, wide)]
        return CLayer(
            *(
                self._matrix(f"{prefix}{name}.weight", rows, cols)
                for name, (rows, cols) in zip(PROJECTIONS, sizes, strict=True)
            ),
            self._norm(f"{prefix}input_layernorm.weight"),
            self._norm(f"{prefix}post_attention_layernorm.weight"),
        )

    def _point_to_weights(self, captured: tuple[int, ...], head_rows: int | None) -> None:
        shape = self._shape
        size = (shape.vocab_size, shape.hidden_size)
        layers = (CLayer * shape.num_layers)(*map(self._layer, range(shape.num_layers)))
        numbers = (ctypes.c_int64 * len(captured))(*captured)
        self._alive += [layers, numbers]
        self.plan.layers, self.plan.captured = ctypes.addressof(layers), ctypes.addressof(numbers)
        self.plan.embedding = self._matrix("model.embed_tokens.weight", *size)
        tied = shape.tie_word_embeddings
        head = "model.embed_tokens.weight" if tied else "lm_head.weight"
        self.plan.head = self._matrix(head, head_rows or shape.vocab_size, shape.hidden_size)
        self.plan.final_norm = self._norm("model.norm.weight")

    def _point_to_positions(self, caches: tuple[Tensor, Tensor]) -> None:
        shape = self._shape
        exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        positions = torch.arange(caches[0].shape[2], dtype=torch.float32)
        angles = torch.outer(positions, 1.0 / shape.rope_theta**exponents)
        self.plan.cosines, self.plan.sines = self._keep(angles.cos()), self._keep(angles.sin())
        self.plan.keys, self.plan.values = caches[0].data_ptr(), caches[1].data_ptr()

    def _point_to_buffers(self, room: Room) -> None:
        shape, plan, rows = self._shape, self.plan, room.max_rows
        queries = shape.num_heads * shape.head_dim
        plan.query, plan.mixed = (self._keep(torch.empty(rows, queries)) for _ in range(2))
        plan.delta = self._keep(self.delta)
        wide = shape.intermediate_size
        plan.gated, plan.lifted = (self._keep(torch.empty(rows, wide)) for _ in range(2))
        plan.logits = self._keep(self.logits)
        plan.tops = self._keep(torch.empty(room.threads, rows, TOP_BYTES, dtype=torch.uint8))


def check_shape(
    shape: TargetShape, caches: tuple[Tensor, Tensor], captured: tuple[int, ...]
) -> None:
    """Refuse what the C code cannot run; caches are keys and values, [L, KV, S, D] float32.

    Args:
        shape: The target's shape, or that of a rank's part.
        caches: Keys and values, [L, KV, S, D] float32 each.
        captured: Layers whose inputs are features.

    Raises:
        ValueError: Sizes that do not fill whole vectors, a cache of another shape, or capture
            layers that the target lacks.
    """
    if shape.head_dim % 16 or shape.hidden_size % 32 or shape.intermediate_size % 32:
        raise ValueError(
            f"head_dim={shape.head_dim}, hidden_size={shape.hidden_size},"
            f" intermediate_size={shape.intermediate_size}: the native step needs multiples of"
            " 16, 32 and 32; use verify=extend"
        )
    for cache in caches:
        wanted = (shape.num_layers, shape.num_kv_heads, caches[0].shape[2], shape.head_dim)
        fits = cache.shape == wanted and cache.dtype == torch.float32 and cache.is_contiguous()
        if not fits or cache.device.type != "cpu":
            raise ValueError(
                f"key-value cache {list(cache.shape)} {cache.dtype}: the native step needs"
                f" contiguous {list(wanted)} torch.float32 on the CPU"
            )
    if not all(0 <= layer < shape.num_layers for layer in captured):
        raise ValueError(f"capture_layers={captured}: the target has {shape.num_layers} layers")
