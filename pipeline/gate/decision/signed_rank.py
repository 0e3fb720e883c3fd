"""Test log ratios of pairs by signed ranks, exactly and sequentially.

A pair is a candidate's time against the reference's, taken back to back in an order drawn at
random. If the two are equally fast, each pair's log ratio is therefore as likely positive as
negative, whatever the noise: heavy tails, drift, a machine of two speeds, noise that remembers.
Given their sizes, all that is random is the coins that were drawn, so the distribution of a sum of
ranks of the positive ones is known exactly and holds no assumption on the noise.

Pairs are ranked within blocks, and block sums are added: blocks are then independent, and the law
of the sum over several looks is a convolution with the part that already stopped cut away, the
recursion of Armitage, McPherson and Rowe 1969 (https://doi.org/10.2307/2343787) in whole numbers.
Ranks also bound what one outlier can do: a pair in which the machine changed its speed counts as
the largest of its block, not a hundredfold. For normal noise a block of 12 needs 10 % more pairs
than the mean would, and with heavy tails far fewer.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
BISECTIONS = 48  # of a range of log ratios: far below a clock's resolution


def block_sums(values: Floats, block: int) -> Ints:
    """Sum the ranks of the positive values up to each block of pairs.

    A zero counts as negative and a tie gives the positive value the lower rank, so coarse clocks
    make the test conservative and never eager.

    Args:
        values: [..., pairs]; a multiple of `block` pairs.
        block: Pairs that are ranked together.

    Returns:
        [..., blocks]: sums over the first block, the first two, and so on.
    """
    blocks = values.reshape(*values.shape[:-1], -1, block)
    positive = blocks > 0
    order = np.lexsort((~positive, np.abs(blocks)), axis=-1)
    ranked = np.take_along_axis(positive, order, axis=-1)
    sums: Ints = (ranked @ np.arange(1, block + 1)).cumsum(axis=-1)
    return sums


@lru_cache(maxsize=64)
def bounds(block: int, blocks: int, error: float) -> tuple[int, ...]:
    """Return the smallest sum after each block that is proof, with `error` spent over all looks.

    The error is spent in proportion to the pairs; what a look cannot use, because sums are whole
    numbers, the next one may. A bound above the largest possible sum means no proof yet.

    Args:
        block: Pairs in a block.
        blocks: Looks, one after each block.
        error: Probability that fair coins reach any of the bounds: it is not exceeded.
    """
    step = _sum_law(block)
    going_on, spent, smallest = np.ones(1), 0.0, []
    for look in range(1, blocks + 1):
        going_on = np.convolve(going_on, step)
        tail = going_on[::-1].cumsum()[::-1]  # probability of each sum or more, not stopped yet
        bound = int(np.count_nonzero(tail > error * look / blocks - spent))
        spent += float(going_on[bound:].sum())
        going_on[bound:] = 0
        smallest.append(bound)
    return tuple(smallest)


@lru_cache(maxsize=64)
def _sum_law(block: int) -> Floats:
    """Return the probability of each rank sum of a block: [block (block + 1) / 2 + 1]."""
    law = np.ones(1)
    for rank in range(1, block + 1):
        law = (np.pad(law, (0, rank)) + np.pad(law, (rank, 0))) / 2
    return law


def middle(values: Floats, block: int) -> float:
    """Estimate the shift of log ratios as Hodges and Lehmann do, by blocks.

    Args:
        values: [pairs] log ratios, a multiple of `block` of them.
        block: Pairs that are ranked together.
    """
    return shift_at(values, block, len(values) * (block + 1) / 4)


def shift_at(values: Floats, block: int, bound: float) -> float:
    """Return the largest shift that, taken off all values, leaves a rank sum of at least `bound`.

    With a bound that is proof, that is the confidence limit that goes with it.

    Args:
        values: [pairs] log ratios, a multiple of `block` of them.
        block: Pairs that are ranked together.
        bound: Rank sum to reach; minus infinity is returned where none can be so large.
    """
    if bound > len(values) * (block + 1) / 2:
        return -math.inf
    low, high = float(values.min()) - 1, float(values.max())
    for _ in range(BISECTIONS):
        between = (low + high) / 2
        if block_sums(values - between, block)[-1] >= bound:
            low = between
        else:
            high = between
    return low
