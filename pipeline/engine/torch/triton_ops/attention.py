"""Attention of a step's rows over the static cache, split along the slots in use.

The number of slots is read on the device, so one captured launch serves every length and unused
slots are never read. Splits take turns at pieces of fixed size and rows come in blocks of fixed
size, so that a row's result is the same bits at every width.

Source of the split: Dao et al. 2023, https://pytorch.org/blog/flash-decoding/
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline.engine.torch.triton_ops.launch import begin, overlap, wait

_PIECE = 64  # slots that are looked at together
_ROWS = 16  # query heads times rows of the step in one block: a tensor-core tile
_BLOCKS = 128  # blocks that fill the GPU when each holds one split of one head


@triton.jit
def _rotate_and_store(
    qkv: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    start: tl.tensor,
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    head_stride: int,
    N: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    begin(OVERLAP)
    wait(OVERLAP)
    row, head = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, D // 2)
    source = qkv + (row * (N + 2 * KV) + head) * D
    low = tl.load(source + column).to(tl.float32)
    high = tl.load(source + D // 2 + column).to(tl.float32)
    slot = (tl.load(start) + row).to(tl.int64) * D
    if head < N + KV:
        c, s = tl.load(cos + row * D + column), tl.load(sin + row * D + column)
        low, high = low * c - high * s, high * c + low * s
    if head < N:
        target = query + (row * N + head) * D
    elif head < N + KV:
        target = keys + (head - N).to(tl.int64) * head_stride + slot
    else:
        target = values + (head - N - KV).to(tl.int64) * head_stride + slot
    tl.store(target + column, low)
    tl.store(target + D // 2 + column, high)


def rotate_and_store(
    qkv: Tensor,
    rotary: tuple[Tensor, Tensor],
    start: Tensor,
    keys: Tensor,
    values: Tensor,
    num_heads: int,
) -> Tensor:
    """Return turned queries, [W, N, D]; write keys and values, [K, S, D], from slot `start` on."""
    width, (num_kv_heads, _, head_dim) = len(qkv), keys.shape
    query = torch.empty((width, num_heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    _rotate_and_store[(width, num_heads + 2 * num_kv_heads)](
        qkv,
        *rotary,
        start,
        query,
        keys,
        values,
        keys.stride(0),
        N=num_heads,
        KV=num_kv_heads,
        D=head_dim,
        num_warps=1,
        **overlap(qkv.device),
    )
    return query


@triton.jit
def _attend_split(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    mask: tl.tensor,
    start: tl.tensor,
    partial: tl.tensor,
    peak: tl.tensor,
    weight: tl.tensor,
    head_stride: int,
    width: int,
    scale: float,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    PIECE: tl.constexpr,
    ROWS: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    begin(OVERLAP)
    wait(OVERLAP)
    block, split, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    member = block * ROWS + tl.arange(0, ROWS)  # row of the step, then head of the group
    row, given = member // GROUP, member < width * GROUP
    column, offset = tl.arange(0, D), tl.arange(0, PIECE)
    query_head = row * (tl.num_programs(2) * GROUP) + head * GROUP + member % GROUP
    q = tl.load(query + query_head[:, None] * D + column[None, :], given[:, None], other=0.0)
    before = tl.load(start).to(tl.int32)
    num_slots = before + width
    key_head = keys + head.to(tl.int64) * head_stride
    value_head = values + head.to(tl.int64) * head_stride
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    norm = tl.zeros((ROWS,), tl.float32)
    seen = tl.zeros((ROWS, D), tl.float32)
    for piece in range(split * PIECE, num_slots, SPLITS * PIECE):
        slot = piece + offset
        used = slot < num_slots
        place = slot.to(tl.int64)
        k = tl.load(key_head + place[None, :] * D + column[:, None], used[None, :], other=0.0)
        v = tl.load(value_head + place[:, None] * D + column[None, :], used[:, None], other=0.0)
        among = (slot[None, :] >= before) & used[None, :] & given[:, None]
        drafted = tl.load(mask + row[:, None] * width + (slot[None, :] - before), among, other=0)
        allowed = (slot[None, :] < before) | (drafted != 0)
        scores = tl.where(allowed, tl.dot(q, k) * scale, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        # A row that may attend nothing yet has no peak: 0 instead keeps NaN out.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        shrink = tl.exp2(highest - base)
        probability = tl.exp2(scores - base[:, None])
        norm = norm * shrink + tl.sum(probability, axis=1)
        seen = tl.dot(probability.to(v.dtype), v, seen * shrink[:, None])
        highest = higher
    out = ((head * tl.num_programs(0) + block) * SPLITS + split) * ROWS + tl.arange(0, ROWS)
    tl.store(partial + out[:, None] * D + column[None, :], seen)
    tl.store(peak + out, highest)
    tl.store(weight + out, norm)


@triton.jit
def _join_splits(
    partial: tl.tensor,
    peak: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    GROUP: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    begin(OVERLAP)
    wait(OVERLAP)
    row, query_head = tl.program_id(0), tl.program_id(1)
    num_blocks = (tl.num_programs(0) * GROUP + ROWS - 1) // ROWS
    member = row * GROUP + query_head % GROUP
    block = (query_head // GROUP) * num_blocks + member // ROWS
    place = (block * SPLITS + tl.arange(0, SPLITS)) * ROWS + member % ROWS
    column = tl.arange(0, D)
    peaks = tl.load(peak + place)
    share = tl.exp2(peaks - tl.max(peaks, axis=0))
    seen = tl.load(partial + place[:, None] * D + column[None, :])
    total = tl.sum(seen * share[:, None], axis=0) / tl.sum(tl.load(weight + place) * share, axis=0)
    tl.store(out + (row * KV * GROUP + query_head) * D + column, total)


def attend(query: Tensor, mask: Tensor, start: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attend from [W, N, D] to the slots before `start` and, as `mask` says, to the rows.

    Args:
        query: Turned queries.
        mask: [W, W] uint8; row may attend row.
        start: [] int64; slots before it are attended by all rows, row i stands at `start + i`.
        keys: [K, S, D].
        values: [K, S, D].

    Returns:
        [W, N * D].
    """
    (width, num_heads, head_dim), num_kv_heads = query.shape, len(keys)
    group = num_heads // num_kv_heads
    splits = max(4, min(64, 1 << (_BLOCKS // num_kv_heads).bit_length() - 1))
    num_blocks = triton.cdiv(width * group, _ROWS)
    sizes = {"GROUP": group, "D": head_dim, "SPLITS": splits, "ROWS": _ROWS}
    sums = torch.empty(
        (num_kv_heads, num_blocks, splits, _ROWS, head_dim),
        dtype=torch.float32,
        device=query.device,
    )
    peak, weight = (torch.empty_like(sums[..., 0]) for _ in range(2))
    launch = overlap(query.device)
    # exp2 is the instruction that there is; the scale carries the change of base.
    scale = head_dim**-0.5 * 1.4426950408889634
    stride = keys.stride(0)
    _attend_split[(num_blocks, splits, num_kv_heads)](
        *(query, keys, values, mask, start, sums, peak, weight, stride, width, scale),
        **sizes,
        PIECE=_PIECE,
        num_warps=4,
        num_stages=2,
        **launch,
    )
    out = torch.empty((width, num_heads * head_dim), dtype=query.dtype, device=query.device)
    _join_splits[(width, num_heads)](
        *(sums, peak, weight, out), KV=num_kv_heads, **sizes, num_warps=2, **launch
    )
    return out
