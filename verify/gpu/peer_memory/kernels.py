"""One kernel for sum over ranks, residual add and norm: push, poll, add.

Each rank writes its part into every other rank's slot and reads its own slot until no word is
empty, so the data is its own signal and one trip over the link is all that there is to wait for.

Source: Hu et al., the LL protocol of NCCL, https://arxiv.org/abs/2507.04786.
"""

from __future__ import annotations

import triton
import triton.language as tl

from verify.gpu.launch import begin, wait

# What marks a word as not yet written: see allreduce.EMPTY.
_EMPTY = tl.constexpr(-1)
_OTHER_NAN = tl.constexpr(0x7FFF7FFF)


@triton.jit
def _low(words: tl.tensor) -> tl.tensor:
    """Return the first bf16 of each word as float32."""
    return (words << 16).to(tl.float32, bitcast=True)


@triton.jit
def _high(words: tl.tensor) -> tl.tensor:
    """Return the second bf16 of each word as float32."""
    return (words & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _words(low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """Round two float32 to bf16 and put them into words."""
    first = low.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    second = high.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32)
    return (second << 16) | first


@triton.jit
def _slots(addresses: tl.tensor, rank: int) -> tl.tensor:
    """Return a pointer to a rank's slots; the hint makes 16-byte accesses of what follows."""
    return tl.multiple_of(tl.load(addresses + rank).to(tl.pointer_type(tl.int32)), 16)


@triton.jit
def _send(words: tl.tensor, slots: tl.tensor, place: tl.tensor, inside: tl.tensor) -> None:
    """Write words into a rank's memory; the one value that means empty becomes another NaN."""
    target = slots + place
    tl.store(target, tl.where(words == _EMPTY, _OTHER_NAN, words), inside)


@triton.jit
def _receive(slots: tl.tensor, place: tl.tensor, inside: tl.tensor) -> tl.tensor:
    """Wait until all words are there, take them, and leave the place empty."""
    source = slots + place
    words = tl.load(source, inside, other=0, volatile=True)
    while tl.max(tl.max((words == _EMPTY).to(tl.int32), axis=1), axis=0) != 0:
        words = tl.load(source, inside, other=0, volatile=True)
    tl.store(source, tl.full(words.shape, _EMPTY, tl.int32), inside)
    return words


@triton.jit
def one_shot(
    delta: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    out: tl.tensor,
    total: tl.tensor,
    addresses: tl.tensor,
    slot: int,
    sender_words: int,
    eps: float,
    RANK: tl.constexpr,
    WORLD: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    FUSED: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """Sum one row over the ranks; FUSED: and add the residual and norm.

    All pointers are to int32 words, two bf16 each; WORDS of them are a row.
    """
    begin(OVERLAP)
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)[:, None] * 4 + tl.arange(0, 4)[None, :]
    inside = column < WORDS
    place = row * WORDS + column
    own_slots = _slots(addresses, RANK)
    scale = tl.zeros((BLOCK, 4), tl.int32)
    if FUSED:
        scale = tl.load(weight + column, inside, other=0)
    wait(OVERLAP)
    own = tl.load(delta + place, inside, other=0)
    for step in tl.static_range(1, WORLD):
        peer = (RANK + step) % WORLD
        _send(own, _slots(addresses, peer), slot + RANK * sender_words + place, inside)
    low, high = tl.zeros((BLOCK, 4), tl.float32), tl.zeros((BLOCK, 4), tl.float32)
    before = own
    if FUSED:
        before = tl.load(residual + place, inside, other=0)
    for sender in tl.static_range(0, WORLD):
        part = own
        if sender != RANK:
            part = _receive(own_slots, slot + sender * sender_words + place, inside)
        low += _low(part)
        high += _high(part)
    if FUSED:
        sums = _words(low + _low(before), high + _high(before))
        tl.store(total + place, sums, inside)
        low, high = _low(sums), _high(sums)
        square = tl.sum(tl.sum(low * low + high * high, axis=1), axis=0)
        root = tl.rsqrt(square / (2 * WORDS) + eps)
        low, high = low * root * _low(scale), high * root * _high(scale)
    tl.store(out + place, _words(low, high), inside)


@triton.jit
def two_shot(
    data: tl.tensor,
    out: tl.tensor,
    addresses: tl.tensor,
    slot: int,
    sender_words: int,
    num_words: int,
    RANK: tl.constexpr,
    WORLD: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """Sum a block's words at the rank that owns them, which sends the sum to all others."""
    begin(OVERLAP)
    block = tl.program_id(0)
    owner = block % WORLD
    place = block * BLOCK * 4 + tl.arange(0, BLOCK)[:, None] * 4 + tl.arange(0, 4)[None, :]
    inside = place < num_words
    own_slots = _slots(addresses, RANK)
    wait(OVERLAP)
    own = tl.load(data + place, inside, other=0)
    if owner == RANK:
        low, high = tl.zeros((BLOCK, 4), tl.float32), tl.zeros((BLOCK, 4), tl.float32)
        for sender in tl.static_range(0, WORLD):
            part = own
            if sender != RANK:
                part = _receive(own_slots, slot + sender * sender_words + place, inside)
            low += _low(part)
            high += _high(part)
        sums = _words(low, high)
        for step in tl.static_range(1, WORLD):
            peer = (RANK + step) % WORLD
            _send(sums, _slots(addresses, peer), slot + RANK * sender_words + place, inside)
        tl.store(out + place, sums, inside)
    else:
        target = _slots(addresses, owner)
        _send(own, target, slot + RANK * sender_words + place, inside)
        source = slot + owner * sender_words + place
        tl.store(out + place, _receive(own_slots, source, inside), inside)
