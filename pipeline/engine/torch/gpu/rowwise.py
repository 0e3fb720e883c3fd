"""Kernels that walk along rows: norm with the residual's sum, first and second best."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from verify.gpu.launch import begin, overlap, wait

_BEST_CHUNK = 2048


@triton.jit
def _add_rms_norm(
    delta: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    normed: tl.tensor,
    total: tl.tensor,
    eps: float,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    begin(OVERLAP)
    column = tl.arange(0, BLOCK)
    inside = column < H
    scale = tl.load(weight + column, inside, other=0.0).to(tl.float32)
    wait(OVERLAP)
    place = tl.program_id(0) * H + column
    x = tl.load(residual + place, inside, other=0.0)
    if ADD:
        delta_row = tl.load(delta + place, inside, other=0.0)
        x = (x.to(tl.float32) + delta_row.to(tl.float32)).to(x.dtype)
        tl.store(total + place, x, inside)
    wide = x.to(tl.float32)
    wide *= tl.rsqrt(tl.sum(wide * wide) / H + eps)
    tl.store(normed + place, wide * scale, inside)


def add_rms_norm(
    delta: Tensor, residual: Tensor, weight: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Return the norm of `residual + delta`, [W, H], and that sum."""
    normed, total = torch.empty_like(residual), torch.empty_like(residual)
    _launch_norm(delta, residual, weight, normed, total, eps)
    return normed, total


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return x, [W, H], scaled to unit root mean square and by `weight`."""
    normed = torch.empty_like(x)
    _launch_norm(None, x, weight, normed, x, eps)
    return normed


def _launch_norm(
    delta: Tensor | None,
    residual: Tensor,
    weight: Tensor,
    normed: Tensor,
    total: Tensor,
    eps: float,
) -> None:
    """Run one block a row."""
    width, hidden = residual.shape
    block = triton.next_power_of_2(hidden)
    _add_rms_norm[(width,)](
        residual if delta is None else delta,
        residual,
        weight,
        normed,
        total,
        eps,
        H=hidden,
        BLOCK=block,
        ADD=delta is not None,
        num_warps=max(1, min(16, block // 256)),
        **overlap(residual.device),
    )


@triton.jit
def _best_of_chunk(
    logits: tl.tensor,
    best: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    size: int,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    begin(OVERLAP)
    wait(OVERLAP)
    chunk, row = tl.program_id(0), tl.program_id(1)
    column = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * size + column, column < size, other=float("-inf"))
    top = tl.argmax(x, axis=0, tie_break_left=True)
    place = row * tl.num_programs(0) + chunk
    tl.store(best + place, chunk * BLOCK + top)
    tl.store(first + place, tl.max(x, axis=0))
    rest = tl.where(tl.arange(0, BLOCK) == top, float("-inf"), x)
    tl.store(second + place, tl.max(rest, axis=0))


@triton.jit
def _best_of_row(
    best: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    out: tl.tensor,
    margin: tl.tensor,
    num_chunks: int,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    begin(OVERLAP)
    wait(OVERLAP)
    row = tl.program_id(0)
    chunk = tl.arange(0, BLOCK)
    place, inside = row * num_chunks + chunk, chunk < num_chunks
    firsts = tl.load(first + place, inside, other=float("-inf"))
    seconds = tl.load(second + place, inside, other=float("-inf"))
    top = tl.argmax(firsts, axis=0, tie_break_left=True)
    rest = tl.where(chunk == top, seconds, firsts)
    tl.store(out + row, tl.load(best + row * num_chunks + top).to(tl.int64))
    tl.store(margin + row, tl.max(firsts, axis=0) - tl.max(rest, axis=0))


def best_and_margin(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's argmax, [W] int64, and its lead over the second best, [W] float32."""
    width, size = logits.shape
    num_chunks = triton.cdiv(size, _BEST_CHUNK)
    best = torch.empty((width, num_chunks), dtype=torch.int32, device=logits.device)
    first, second = (torch.empty_like(best, dtype=torch.float32) for _ in range(2))
    launch = overlap(logits.device)
    _best_of_chunk[(num_chunks, width)](
        logits, best, first, second, size, BLOCK=_BEST_CHUNK, **launch
    )
    out = torch.empty(width, dtype=torch.int64, device=logits.device)
    margin = torch.empty(width, dtype=torch.float32, device=logits.device)
    block = triton.next_power_of_2(num_chunks)
    _best_of_row[(width,)](
        best, first, second, out, margin, num_chunks, BLOCK=block, num_warps=1, **launch
    )
    return out, margin
