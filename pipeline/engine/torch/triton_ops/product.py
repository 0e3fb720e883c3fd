"""Products of a few rows with a big matrix: bound by reading the matrix, so read it once, early.

The weight is the left operand and the rows are padded to 16 columns of a tensor-core tile, so
that 1 to 16 rows cost the same and a row's result does not depend on how many others there are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline.engine.torch.triton_ops.launch import begin, overlap, wait

MAX_ROWS = 16
_LINE = 128  # bytes that one prefetch brings into the L2 cache


class Tile(NamedTuple):
    """How a product is cut.

    Attributes:
        rows: Rows of the weight that one block computes.
        depth: Elements along a row that are in flight together.
        stages: Such pieces in flight.
        warps: Warps of a block.
        ahead: Elements along a row that are fetched into the L2 cache before the input is ready.
    """

    rows: int
    depth: int
    stages: int
    warps: int
    ahead: int


def tile_for(num_rows: int, depth: int) -> Tile:
    """Return the measured best cut for a weight of [num_rows, depth] (H200; others: untested)."""
    if num_rows <= 8192:
        return Tile(rows=16, depth=256, stages=4, warps=4, ahead=min(depth, 2048))
    return Tile(rows=32, depth=128, stages=4, warps=4, ahead=min(depth, 1024))


@triton.jit
def _linear(
    x: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    num_rows: int,
    num_out: int,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    AHEAD: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    begin(OVERLAP)
    row = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = row < num_out
    first = weight + tl.where(inside, row, 0).to(tl.int64)[:, None] * K
    if OVERLAP and AHEAD > 0:
        for place in range(0, AHEAD, 1024):
            line = first + place + tl.arange(0, 16)[None, :] * 64
            tl.inline_asm_elementwise(
                "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
                "=r,l",
                [line.to(tl.int64)],
                tl.int32,
                is_pure=False,
                pack=1,
            )
    wait(OVERLAP)
    column = tl.arange(0, 16)
    given = column < num_rows
    total = tl.zeros((BLOCK_N, 16), tl.float32)
    for begin_k in range(0, K, BLOCK_K):
        depth = begin_k + tl.arange(0, BLOCK_K)
        if K % BLOCK_K == 0:
            w = tl.load(first + depth[None, :])
            rows = tl.load(x + column[None, :] * K + depth[:, None], given[None, :], other=0.0)
        else:
            left = depth < K
            w = tl.load(first + depth[None, :], left[None, :], other=0.0)
            keep = given[None, :] & left[:, None]
            rows = tl.load(x + column[None, :] * K + depth[:, None], keep, other=0.0)
        total = tl.dot(w, rows, total)
    place = column[None, :].to(tl.int64) * num_out + row[:, None]
    tl.store(out + place, total, inside[:, None] & given[None, :])


def skinny_linear(
    x: Tensor, weight: Tensor, out_dtype: torch.dtype | None = None, tile: Tile | None = None
) -> Tensor:
    """Return x, [W, in] with W up to 16, times the transpose of `weight`, [out, in]."""
    num_out, depth = weight.shape
    out = torch.empty((len(x), num_out), dtype=out_dtype or x.dtype, device=x.device)
    cut = tile or tile_for(num_out, depth)
    _linear[(triton.cdiv(num_out, cut.rows),)](
        x,
        weight,
        out,
        len(x),
        num_out,
        K=depth,
        BLOCK_N=cut.rows,
        BLOCK_K=cut.depth,
        AHEAD=cut.ahead // 1024 * 1024,
        num_warps=cut.warps,
        num_stages=cut.stages,
        **overlap(x.device),
    )
    return out
