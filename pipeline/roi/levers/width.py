"""Accept length at a width that was not run, from rates by position or from a histogram."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from pipeline.roi.levers.gain import Basis, Range


def accept_length_of(rates: Sequence[float], width: int) -> float:
    """Return `1 + a1 + a1 a2 + …` over the first `width - 1` conditional rates.

    Args:
        rates: Accept rate by position, each of the steps that reached it.
        width: Rows of a verify step, at most `len(rates) + 1`.

    Raises:
        ValueError: The width needs more rates.
    """
    if width - 1 > len(rates):
        raise ValueError(f"width {width} needs {width - 1} accept rates; {len(rates)} are known")
    return 1 + sum(accumulate(rates[: width - 1], lambda product, rate: product * rate))


def cut(histogram: Sequence[int], width: int) -> float:
    """Return the accept length of a narrower chain: a step commits at most `width` tokens.

    Args:
        histogram: Item k - 1 counts the steps that committed k tokens.
        width: Rows of the narrower verify step.
    """
    steps = sum(histogram)
    return sum(count * min(k, width) for k, count in enumerate(histogram, start=1)) / steps


def reach(histogram: Sequence[int], width: int) -> Range:
    """Return the accept length of a narrower or wider chain.

    Narrower: exact for a chain whose proposals do not depend on its length, up to where the steps
    fall in the text. Wider: the unknown positions accept at best as the last known one does,
    at worst nothing.
    """
    known_width = len(histogram)
    if width <= known_width:
        length = cut(histogram, width)
        return Range(length, length, Basis.MEASURED, "histogram of committed tokens")
    steps, full = sum(histogram), histogram[-1]
    reached = full + (histogram[-2] if known_width > 1 else 0)
    rate = full / reached if reached else 0.0
    now = cut(histogram, known_width)
    more = sum(full / steps * rate**i for i in range(1, width - known_width + 1))
    return Range(now, now + more, Basis.MEASURED, "histogram, last rate carried on at best")


def best_width(rates: Sequence[float], plain_ms: float, row_ms: float, draft_ms: float) -> int:
    """Return the width with the most tok/s when each draft token costs the same.

    Args:
        rates: Accept rate by position.
        plain_ms: Step time at width 1 with what does not depend on the width.
        row_ms: What one more row costs the verify step.
        draft_ms: What drafting one more token costs.
    """
    speeds = {
        width: accept_length_of(rates, width) / (plain_ms + (width - 1) * (row_ms + draft_ms))
        for width in range(1, len(rates) + 2)
        if not any(math.isnan(rate) for rate in rates[: width - 1])
    }
    return max(speeds, key=lambda width: speeds[width])
