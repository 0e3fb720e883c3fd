"""Products of a few rows with a big matrix, bound by reading the matrix.

One to 16 rows cost nearly the same, and a row's result is the same bits however many others there
are.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.engine.torch.gpu.cuda_source import cuda_kernel

MAX_ROWS = 16
_SOURCE = Path(__file__).with_name("product.cu")
_PIECE = 32  # columns of the matrix that a tile takes at a time


class Cut(NamedTuple):
    """How a product is divided; the macros of `product.cu`.

    Attributes:
        tiles: Times 16 rows of the weight that one block computes.
        warps: Warps of a block.
        depth: Pieces of 32 columns in flight per warp, an even number.
        blocks: Blocks that must fit a multiprocessor together.
        lead: Rounds before its end at which a block lets the next kernel start.
        ahead: Rounds fetched into the L2 cache before the input is ready.
    """

    tiles: int
    warps: int
    depth: int
    blocks: int
    lead: int = 0
    ahead: int = 0


def takes(weight: Tensor) -> bool:
    """Whether the kernel can read this matrix, [out, in]."""
    return weight.dtype == torch.bfloat16 and weight.shape[1] % _PIECE == 0


def cut_for(num_rows: int, num_out: int) -> Cut:
    """Return the cut that made whole steps of an 8B-shaped target fastest on H200s.

    Args:
        num_rows: Rows of x.
        num_out: Rows of the weight.
    """
    if num_rows > 8:
        return Cut(1, 8, 4, 2) if num_out <= 4096 else Cut(1, 8, 2, 4)
    if num_out <= 4096:
        return Cut(1, 8, 6, 2, ahead=1)
    return Cut(1, 8, 4, 3) if num_out <= 8192 else Cut(1, 8, 6, 2)


def skinny_product(
    x: Tensor,
    weight: Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
    gated: bool = False,
    cut: Cut | None = None,
) -> Tensor:
    """Return x, [W, in] with W up to 16, times the transpose of `weight`, [out, in].

    Args:
        x: bf16, contiguous.
        weight: bf16, contiguous.
        out_dtype: bfloat16 or float32.
        gated: `weight` is [2 * out, in], gates first: return silu(gate) * up.
        cut: How to divide the work; by default what was measured best.
    """
    cut = cut or cut_for(len(x), len(weight))
    num_out, depth = weight.shape[0] // (1 + gated), weight.shape[1]
    out = torch.empty((len(x), num_out), dtype=out_dtype, device=x.device)
    kernel = cuda_kernel(
        _SOURCE,
        "product",
        x.device.index,
        TILES=cut.tiles,
        COLUMNS=-(-len(x) // 8),
        DEPTH=cut.depth,
        WARPS=cut.warps,
        BLOCKS=cut.blocks,
        LEAD=cut.lead,
        AHEAD=cut.ahead,
        GATED=int(gated),
        OUT="float" if out_dtype == torch.float32 else "unsigned short",
    )
    grid = -(-num_out // (16 * cut.tiles // (1 + gated)))  # rounded up
    kernel(grid, 32 * cut.warps, weight, x, out, len(x), num_out, depth // 8)
    return out
