"""Products of a few rows with a big matrix, bound by reading the matrix.

One to 8 rows cost the same, and nearly so up to 16; a row's result is the same bits however many
others there are.
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
        depth: Pieces of 32 columns in flight per warp.
        blocks: Blocks that must fit a multiprocessor together.
        ahead: Rounds fetched into the L2 cache before the input is ready.
    """

    tiles: int = 2
    warps: int = 8
    depth: int = 4
    blocks: int = 2
    ahead: int = 0


def takes(weight: Tensor) -> bool:
    """Whether the kernel can read this matrix."""
    return weight.dtype == torch.bfloat16 and weight.shape[1] % _PIECE == 0


def skinny_linear(
    x: Tensor, weight: Tensor, out_dtype: torch.dtype = torch.bfloat16, cut: Cut | None = None
) -> Tensor:
    """Return x, [W, in] with W up to 16, times the transpose of `weight`, [out, in].

    Args:
        x: bf16, contiguous.
        weight: bf16, contiguous.
        out_dtype: bfloat16 or float32.
        cut: How to divide the work; by default what was measured best.
    """
    num_out, depth = weight.shape
    out = torch.empty((len(x), num_out), dtype=out_dtype, device=x.device)
    tiles, warps, pieces, blocks, ahead = cut or Cut()
    kernel = cuda_kernel(
        _SOURCE,
        "product",
        x.device.index,
        TILES=tiles,
        COLUMNS=1 if len(x) <= 8 else 2,
        DEPTH=pieces,
        WARPS=warps,
        BLOCKS=blocks,
        AHEAD=ahead,
        OUT="float" if out_dtype == torch.float32 else "unsigned short",
    )
    grid = -(-num_out // (16 * tiles))
    kernel(grid, 32 * warps, weight, x, out, len(x), num_out, depth // 8)
    return out
