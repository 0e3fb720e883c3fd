"""Run a target's whole forward as one call of C over fixed buffers; time its sums over ranks."""

from __future__ import annotations

import copy
import ctypes
import time
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from verify.base import CompiledForward, TargetShape
from verify.native.layout import Layout, Room
from verify.native.packed import Packed
from verify.native.ranks import RankMemory, Sizes
from verify.native.structs import WAYS, CStep

PREFILL_ROWS = 64  # a chunk's activations stay in the second-level cache
_LOST = 4
_FAULTS = {
    1: "a token id outside the vocabulary",
    2: "a position outside the key-value cache",
    3: "a row that does not attend itself (the mask's diagonal must be true)",
}
_CALLS = 64  # in one measurement
_REPEATS = 5


class PlanOutput(NamedTuple):
    """A step's output by row; see `verify.base.StepOutput`.

    Attributes:
        logits: [W, V] float32, a view that the next call overwrites.
        best: [W] int64; argmax, the lowest id on a tie.
        margin: [W] float32; best logit minus the second best.
        features: [W, C * H] float32, or None without capture layers.
    """

    logits: Tensor
    best: Tensor
    margin: Tensor
    features: Tensor | None


def memory_sizes(shape: TargetShape, max_width: int) -> Sizes:
    """Return what ranks must share for plans of up to `max_width` rows."""
    rows = max(max_width, PREFILL_ROWS)
    return Sizes(rows, max_width, shape.hidden_size, shape.vocab_size)


class Plan:
    """One Llama-family target and its key-value cache, ready to run steps of up to `max_width`.

    Attributes:
        ways: How this plan can sum over ranks, the best that is a sum and nothing else first.
        ranks: What the ranks share, or None on one rank.
    """

    def __init__(
        self,
        shape: TargetShape,
        weights: Mapping[str, Packed | Tensor],
        key_cache: Tensor,
        value_cache: Tensor,
        *,
        threads: int,
        max_width: int,
        capture_layers: tuple[int, ...],
        library: ctypes.CDLL,
        ranks: RankMemory | None = None,
    ) -> None:
        """Fix every buffer and pointer.

        Args:
            shape: The model's shape.
            weights: Hugging Face names to `Packed` matrices, or tensors: float16, bfloat16 or
                float32 matrices and float32 norm weights. Rows of q and k are in Hugging Face's
                order (rotate-half).
            key_cache: [num_layers, num_kv_heads, positions, head_dim] float32, read and written in
                place; values likewise.
            value_cache: Like `key_cache`.
            threads: Threads of a step; fewer run if the machine grants fewer.
            max_width: Most rows of `run`.
            capture_layers: Layers whose inputs are returned as features, in this order.
            library: From `verify.native.build.load`.
            ranks: With it, everything above is this rank's part, `lm_head.weight` its rows of the
                head, and every rank runs the same calls in the same order.

        Raises:
            ValueError: A weight is missing or has a wrong shape, or the shape cannot be run.
        """
        self.max_width = max_width
        self._positions = key_cache.shape[2]
        room = Room(threads, max(max_width, PREFILL_ROWS), max_width)
        caches = (key_cache, value_cache)
        self._layout = Layout(shape, weights, caches, room, capture_layers, ranks)
        self.ranks, self._shape = ranks, shape
        self.ways: tuple[str, ...] = ("shared_memory", "gloo", "fused") if ranks else ("none",)
        self._plan_at = ctypes.addressof(self._layout.plan)
        self._layout.allocate_scratch(library.native_scratch(self._plan_at))
        self._feature_size = len(capture_layers) * shape.hidden_size
        self._logits = self._layout.logits
        self._best = torch.empty(max_width, dtype=torch.int64)
        self._margin = torch.empty(max_width)
        self._features = torch.empty(max_width, self._feature_size)
        self._call, self._join = library.native_step, library.native_join
        self._sum_by(self.ways[0])

    def _sum_by(self, way: str) -> None:
        """Choose how steps of this plan sum over ranks, and count from zero."""
        self._sums = torch.zeros(len(WAYS), dtype=torch.int64)
        self._step = CStep(
            best=self._best.data_ptr(),
            margin=self._margin.data_ptr(),
            way=WAYS[way],
            sums=self._sums.data_ptr(),
        )
        self._step_at = ctypes.addressof(self._step)

    def summing(self, way: str) -> Plan:
        """Return the same plan with another way to sum over ranks, and counts of its own.

        Raises:
            ValueError: This plan cannot sum so.
        """
        if way not in self.ways:
            raise ValueError(
                f"verify.allreduce={way}: on a CPU, ranks sum with"
                f" {' or '.join(self.ways[:2]) if self.ranks else 'nothing, since there is one'};"
                " use verify.allreduce=auto"
            )
        other = copy.copy(self)
        other._sum_by(way)
        return other

    @property
    def sums(self) -> dict[str, int]:
        """How many blocks ended by each way to sum, as the compiled code counted them."""
        return dict(zip(WAYS, self._sums.tolist(), strict=True))

    def run(self, tokens: Tensor, positions: Tensor, mask: Tensor, start: int) -> PlanOutput:
        """Run one step over W rows and write their keys and values to slots from `start`.

        Args:
            tokens: [W] int64.
            positions: [W] int64.
            mask: [W, W] bool; the row attends the column's slot. Every row attends all slots
                before `start`.
            start: Slots that the cache already holds.

        Returns:
            Views of fixed buffers: the next call overwrites them.

        Raises:
            ValueError: Too many rows, or an input out of range.
            RankLost: Another rank ended or hangs.
        """
        width = len(tokens)
        if not 0 < width <= self.max_width:
            raise ValueError(f"a step of {width} rows: this plan takes 1 to {self.max_width}")
        mask = mask.contiguous()
        features = self._features[:width]
        self._forward(tokens, positions, mask.data_ptr(), start, 0, features)
        return PlanOutput(
            self._logits[:width],
            self._best[:width],
            self._margin[:width],
            features if self._feature_size else None,
        )

    def prefill(self, tokens: Tensor, positions: Tensor) -> PlanOutput:
        """Run any number of rows in order, each attending all before it; bits as row by row.

        Args:
            tokens: [N] int64.
            positions: [N] int64.

        Returns:
            Logits, best and margin of the last row only ([1, V], [1], [1]); features of all rows.

        Raises:
            ValueError: No rows, or an input out of range.
        """
        if not len(tokens):
            raise ValueError("prefill of no tokens: a prompt has at least one")
        features = torch.empty(len(tokens), self._feature_size)
        for first in range(0, len(tokens), PREFILL_ROWS):
            rows = slice(first, first + PREFILL_ROWS)
            count = len(tokens[rows])
            last = first + count == len(tokens)
            logits_from = count - 1 if last else count
            self._forward(tokens[rows], positions[rows], None, first, logits_from, features[rows])
        return PlanOutput(
            self._logits[:1],
            self._best[:1],
            self._margin[:1],
            features if self._feature_size else None,
        )

    def join(
        self, delta: Tensor, residual: Tensor, weight: Tensor, times: int = 1
    ) -> tuple[Tensor, Tensor, float]:
        """End a block alone, as a step's blocks end, on one thread; every rank must do the same.

        Args:
            delta: [W, H] float32, this rank's part of a block's output.
            residual: [W, H] float32.
            weight: [H] float32, of the norm.
            times: How often; the residual takes each sum, the norm is of the last.

        Returns:
            The norm, the residual with the sums, both [W, H], and the seconds it took.

        Raises:
            RankLost: A rank did not come.
        """
        rows, hidden = delta.shape
        if rows > len(self._layout.delta) or hidden != self._shape.hidden_size:
            raise ValueError(f"a block's output of {list(delta.shape)} does not fit this plan")
        residual, normed = residual.contiguous().clone(), torch.full_like(residual, torch.nan)
        delta, self._step.rows = delta.contiguous(), rows
        pointers = (tensor.data_ptr() for tensor in (delta, weight, residual, normed))
        began = time.perf_counter()
        fault = self._join(self._plan_at, self._step_at, *pointers, times)
        seconds = time.perf_counter() - began
        self._check(fault)
        return normed, residual, seconds

    def _check(self, fault: int) -> None:
        """Raise what the compiled code found."""
        if fault == _LOST:
            assert self.ranks is not None
            raise self.ranks.lost()
        if fault:
            raise ValueError(f"native step: {_FAULTS[fault]}")

    def _forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask_at: int | None,
        start: int,
        first_logit: int,
        features: Tensor,
    ) -> None:
        step = self._step
        tokens, positions = tokens.contiguous(), positions.contiguous()
        if start < 0 or start + len(tokens) > self._positions:
            raise ValueError(
                f"rows at slots {start} to {start + len(tokens) - 1}: the key-value cache has"
                f" {self._positions}"
            )
        step.tokens, step.positions, step.mask = tokens.data_ptr(), positions.data_ptr(), mask_at
        step.rows, step.start, step.first_logit = len(tokens), start, first_logit
        step.features = features.data_ptr()
        self._check(self._call(self._plan_at, self._step_at))


def join_times_us(
    plan: CompiledForward, size: tuple[int, int], repeats: int = _REPEATS
) -> dict[str, float]:
    """Return microseconds of one sum + residual add + norm of [W, H], for each way to sum.

    Ways take turns, so that a slow spell of the machine hits all of them; the fastest turn counts,
    since whatever else runs only ever slows one.
    """
    delta, residual = torch.ones(size), torch.zeros(size)
    weight = torch.ones(size[1])
    plans = {way: plan.summing(way) for way in plan.ways}
    times: dict[str, list[float]] = {way: [] for way in plans}
    for _ in range(repeats):
        for way, each in plans.items():
            seconds = each.join(delta, residual, weight, _CALLS)[2]
            times[way].append(seconds / _CALLS * 1e6)
    return {way: min(found) for way, found in times.items()}
