"""Attention of a step's rows over the static cache, split along the slots in use.

One kernel turns queries and keys to their positions, writes the rows' keys and values, and
attends; a second one joins the splits. The number of slots is read on the device, so a captured
launch serves every length and unused slots are never read. Splits take turns at pieces of fixed
size and rows come in blocks of fixed size: a row's result is the same bits at every width.

Source of the split: Dao et al. 2023, https://pytorch.org/blog/flash-decoding/
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from pipeline.engine.torch.kernels import Rows
from verify.gpu.launch import begin, overlap, wait

_PIECE = 32  # slots that are looked at together
_ROWS = 16  # query heads times rows of the step in one block: a tensor-core tile
_BLOCKS = 256  # blocks that fill the GPU when each holds one split of one head


@triton.jit
def _cached(
    cache: tl.tensor, slot: tl.tensor, before: tl.tensor, column: tl.tensor, D: tl.constexpr
) -> tl.tensor:
    """Load what earlier steps wrote at slots, [PIECE, D]; zeros from `before` on."""
    place = slot.to(tl.int64)[:, None] * D + column[None, :]
    return tl.load(cache + place, (slot < before)[:, None], other=0.0)


@triton.jit
def _turned(
    heads: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    first: tl.tensor,
    row: tl.tensor,
    given: tl.tensor,
    D: tl.constexpr,
) -> tl.tensor:
    """Load heads that begin at elements `first` and turn them to their rows' positions."""
    half = tl.arange(0, D // 2)
    keep = given[:, None]
    place = first[:, None] + half[None, :]
    low = tl.load(heads + place, keep, other=0.0).to(tl.float32)
    high = tl.load(heads + place + D // 2, keep, other=0.0).to(tl.float32)
    angle = row[:, None] * D + half[None, :]
    c, s = tl.load(cos + angle, keep, other=0.0), tl.load(sin + angle, keep, other=0.0)
    both = tl.join(low * c - high * s, high * c + low * s)
    return tl.reshape(tl.permute(both, (0, 2, 1)), (first.shape[0], D))


@triton.jit
def _attend_split(
    qkv: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    mask: tl.tensor,
    start: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    partial: tl.tensor,
    peak: tl.tensor,
    weight: tl.tensor,
    head_stride: int,
    width: int,
    scale: float,
    GROUP: tl.constexpr,
    KV: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    PIECE: tl.constexpr,
    ROWS: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    begin(OVERLAP)
    block, split, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    member = block * ROWS + tl.arange(0, ROWS)  # row of the step, then head of the group
    row, given = member // GROUP, member < width * GROUP
    column, offset = tl.arange(0, D), tl.arange(0, PIECE)
    line: tl.constexpr = (GROUP + 2) * KV * D
    key_head = keys + head.to(tl.int64) * head_stride
    value_head = values + head.to(tl.int64) * head_stride
    # Rows and older slots were written before the first launch that may overlap.
    before = tl.load(start).to(tl.int32)
    num_slots = before + width
    k = _cached(key_head, split * PIECE + offset, before, column, D)
    v = _cached(value_head, split * PIECE + offset, before, column, D)
    wait(OVERLAP)
    first = row * line + (head * GROUP + member % GROUP) * D
    q = _turned(qkv, cos, sin, first, row, given, D).to(k.dtype)
    highest = tl.full((ROWS,), float("-inf"), tl.float32)
    norm = tl.zeros((ROWS,), tl.float32)
    seen = tl.zeros((ROWS, D), tl.float32)
    for piece in range(split * PIECE, num_slots, SPLITS * PIECE):
        slot = piece + offset
        drafted = slot - before  # row of the step that stands at the slot
        fresh = (drafted >= 0) & (slot < num_slots)
        if piece + PIECE > before:
            source = drafted * line + (KV * GROUP + head) * D
            turned = _turned(qkv, cos, sin, source, drafted, fresh, D).to(k.dtype)
            k = tl.where(fresh[:, None], turned, k)
            place = (source + KV * D)[:, None] + column[None, :]
            v = tl.where(fresh[:, None], tl.load(qkv + place, fresh[:, None], other=0.0), v)
            if block == 0:
                target = slot.to(tl.int64)[:, None] * D + column[None, :]
                tl.store(key_head + target, k, fresh[:, None])
                tl.store(value_head + target, v, fresh[:, None])
        among = fresh[None, :] & given[:, None]
        attends = tl.load(mask + row[:, None] * width + drafted[None, :], among, other=0)
        allowed = (drafted < 0)[None, :] | (attends != 0)
        scores = tl.where(allowed, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        # A row that may attend nothing yet has no peak: 0 instead keeps NaN out.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        shrink = tl.exp2(highest - base)
        probability = tl.exp2(scores - base[:, None])
        norm = norm * shrink + tl.sum(probability, axis=1)
        seen = tl.dot(probability.to(v.dtype), v, seen * shrink[:, None])
        highest = higher
        k = _cached(key_head, slot + SPLITS * PIECE, before, column, D)
        v = _cached(value_head, slot + SPLITS * PIECE, before, column, D)
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
    peaks, norms = tl.load(peak + place), tl.load(weight + place)
    seen = tl.load(partial + place[:, None] * D + column[None, :])
    share = tl.exp2(peaks - tl.max(peaks, axis=0))
    total = tl.sum(seen * share[:, None], axis=0) / tl.sum(norms * share, axis=0)
    tl.store(out + (row * KV * GROUP + query_head) * D + column, total)


def attend(qkv: Tensor, rows: Rows, keys: Tensor, values: Tensor, num_heads: int) -> Tensor:
    """Turn, store and attend, for the rows of one step.

    Args:
        qkv: [W, (N + 2 * K) * D], the heads of queries, keys and values; N is `num_heads`.
        rows: The step's rows; `mask` is uint8.
        keys: [K, S, D], a layer's cache.
        values: [K, S, D].
        num_heads: Query heads.

    Returns:
        [W, N * D].
    """
    width, (num_kv_heads, _, head_dim) = len(qkv), keys.shape
    group = num_heads // num_kv_heads
    splits = max(4, min(64, 1 << (_BLOCKS // num_kv_heads).bit_length() - 1))
    num_blocks = triton.cdiv(width * group, _ROWS)
    sizes = {"GROUP": group, "KV": num_kv_heads, "D": head_dim, "SPLITS": splits, "ROWS": _ROWS}
    shape = (num_kv_heads, num_blocks, splits, _ROWS, head_dim)
    sums = torch.empty(shape, dtype=torch.float32, device=qkv.device)
    peak, weight = (torch.empty_like(sums[..., 0]) for _ in range(2))
    launch = overlap(qkv.device)
    # exp2 is the instruction that there is; the scale carries the change of base.
    scale = head_dim**-0.5 * 1.4426950408889634
    _attend_split[(num_blocks, splits, num_kv_heads)](
        *(qkv, rows.cos, rows.sin, rows.mask, rows.start, keys, values, sums, peak, weight),
        *(keys.stride(0), width, scale),
        **sizes,
        PIECE=_PIECE,
        num_warps=4,
        **launch,
    )
    out = torch.empty((width, num_heads * head_dim), dtype=qkv.dtype, device=qkv.device)
    _join_splits[(width, num_heads)](*(sums, peak, weight, out), **sizes, num_warps=2, **launch)
    return out
