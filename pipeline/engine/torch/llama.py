"""Run a Llama-family target: one forward for prefill, decode and verify over a static cache.

`Weights` and `Layer` say what it multiplies by, `Llama` runs the rows of a step, and `KVCache`
holds the keys and values of one request and commits the rows that were accepted.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.engine.torch.kernels import Kernels, Rows, rotary_table
from verify.base import CompiledForward, Join, StepInput, StepOutput, TargetShape
from verify.step import DeviceTimer

# W rows of the step, H hidden, I intermediate, V vocabulary, C capture layers

Matrix = Callable[[Tensor], Tensor]  # [W, in] -> [W, out]

# Overlapping launches and bulk prefetches: Hopper and later.
_LEAST_CAPABILITY = (9, 0)


class Layer(NamedTuple):
    """Weights of one layer; queries, keys and values are one matrix, gates and ups another.

    Attributes:
        gated: Returns silu(gate) * up, [W, I].
    """

    input_norm: Tensor
    qkv: Matrix
    output: Matrix
    post_norm: Tensor
    gated: Matrix
    down: Matrix


class Weights(NamedTuple):
    """Weights of a target.

    Attributes:
        embedding: [V, H], on the model's device.
        head: Matrix from H to V.
        linear: Which product the matrices run, for the proof.
    """

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Matrix
    linear: str


class LocalJoin:
    """The end of a block on one rank: nothing to sum."""

    allreduce = "none"
    num_allreduces = num_fused = 0

    def __init__(self, kernels: Kernels) -> None:
        """Bind the kernels."""
        self._kernels = kernels

    def __call__(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + delta`, [W, H], and that sum; `weight` is [H]."""
        return self._kernels.add_rms_norm(delta, residual, weight, eps)


class Llama:
    """The target, on one device, for one request at a time.

    Attributes:
        num_heads: Query heads that this rank holds.
        join: Ends a block: adds its output to the residual and returns the next block's input.
            Tensor parallelism puts its all-reduce here.
    """

    def __init__(
        self,
        shape: TargetShape,
        weights: Weights,
        cache: KVCache,
        capture_layers: tuple[int, ...] = (),
        join: Join | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        """Bind weights and cache; the rotary table covers the cache's capacity.

        Kernels are by default the fastest for the cache's device and type.
        """
        self.shape, self.weights, self.cache = shape, weights, cache
        self.capture_layers = capture_layers
        self.caches, self.device = (cache.keys, cache.values), cache.keys.device
        self.kernels = kernels or kernels_for(self.device, cache.keys.dtype)
        self.linear, self.attention = weights.linear, self.kernels.attention
        self.join: Join = join or LocalJoin(self.kernels)
        self.num_kv_heads = cache.keys.shape[1]
        self.num_heads = self.num_kv_heads * shape.num_heads // shape.num_kv_heads
        table = rotary_table(cache.capacity, shape.head_dim, shape.rope_theta)
        self._cos, self._sin = (part.to(self.device) for part in table)
        self._timer = DeviceTimer(self.device)
        self.plan: CompiledForward | None = None

    def with_join(self, join: Join) -> Llama:
        """Return the same weights and cache with another end of each block."""
        other = copy.copy(self)
        other.join = join
        return other

    def forward(self, step: StepInput) -> StepOutput:
        """Run the rows of a step eagerly; looks at the slots in use and no others."""
        self._timer.start()
        tokens, positions, mask = (part.to(self.device) for part in step[:3])
        start = torch.tensor(step.start, device=self.device)
        logits, best, margin, features = self.forward_static(
            tokens, positions, mask, start, *self.caches, num_slots=step.start + len(tokens)
        )
        self._timer.stop()
        kept = features if self.capture_layers else None
        return StepOutput(logits, best.cpu(), margin.cpu(), kept, self._timer.ms())

    def forward_static(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor,
        start: Tensor,
        keys: Tensor,
        values: Tensor,
        num_slots: int | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Run the rows of a step in shapes that a capture can replay.

        Arguments and results are those of `TargetModel`: tokens [W] to logits [W, V]. `num_slots`
        are looked at, by default the whole cache.
        """
        rotary = (self._cos[positions], self._sin[positions])
        most, dtype = num_slots or self.cache.capacity, self.cache.keys.dtype
        rows = self.kernels.step_rows(tokens, mask, start, most, rotary, dtype)
        logits, features = self._run(rows, keys, values)
        return logits, *self.kernels.best_and_margin(logits), features

    def _run(self, rows: Rows, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits, [W, V] float32, and features, [W, C * H]; write keys and values."""
        weights, eps = self.weights, self.shape.rms_norm_eps
        residual = weights.embedding[rows.tokens]
        x = self.kernels.rms_norm(residual, weights.layers[0].input_norm, eps)
        captured = [residual.new_empty(residual.shape[0], 0)]
        next_norms = [layer.input_norm for layer in weights.layers[1:]] + [weights.norm]
        for number, (layer, next_norm) in enumerate(zip(weights.layers, next_norms, strict=True)):
            if number in self.capture_layers:
                captured.append(residual)
            cache = (keys[number], values[number])
            attended = self.kernels.attend(layer.qkv(x), rows, *cache, self.num_heads)
            x, residual = self.join(layer.output(attended), residual, layer.post_norm, eps)
            x, residual = self.join(layer.down(layer.gated(x)), residual, next_norm, eps)
        return weights.head(x).float(), torch.cat(captured, dim=-1).float()


class KVCache:
    """Keys and values of one request.

    Attributes:
        keys: [L, KV, S, D]; slot i holds the key of token i, rotated.
        values: [L, KV, S, D].
        length: Slots that hold committed tokens.
    """

    def __init__(
        self,
        shape: TargetShape,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        num_kv_heads: int,
    ) -> None:
        """Allocate `capacity` slots of `num_kv_heads` heads, zeroed: a masked NaN would spread."""
        size = (shape.num_layers, num_kv_heads, capacity, shape.head_dim)
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros(size, dtype=dtype, device=device)
        self.length = 0

    @property
    def capacity(self) -> int:
        """Slots that were allocated."""
        return self.keys.shape[2]

    def keep(self, rows: tuple[int, ...]) -> None:
        """Commit rows of the last step, in order; row i was written to slot `length + i`.

        A chain's rows already stand in their places. A tree's accepted path is moved together.
        """
        if rows != tuple(range(len(rows))):
            source = torch.tensor(rows, device=self.keys.device) + self.length
            window = slice(self.length, self.length + len(rows))
            self.keys[:, :, window] = self.keys[:, :, source]
            self.values[:, :, window] = self.values[:, :, source]
        self.length += len(rows)


def kernels_for(device: torch.device, dtype: torch.dtype) -> Kernels:
    """Return the fastest kernels for tensors of this device and type."""
    if device.type == "cuda" and dtype == torch.bfloat16 and _can_compile_for(device):
        from pipeline.engine.torch.gpu import GpuKernels

        return GpuKernels()
    return Kernels()


def _can_compile_for(device: torch.device) -> bool:
    """Whether our kernels run on a GPU: Triton and CUDA's bindings come with torch for NVIDIA."""
    installed = all(importlib.util.find_spec(name) for name in ("triton", "cuda"))
    return installed and torch.cuda.get_device_capability(device) >= _LEAST_CAPABILITY
