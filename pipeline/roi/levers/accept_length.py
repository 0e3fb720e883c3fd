"""Accept length: at a width that was not run, and the levers that raise it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate

from pipeline.measure.wording import number
from pipeline.roi import public_figures as public
from pipeline.roi.levers.gain import Basis, Gain, Range, Side, known
from pipeline.roi.numbers import Numbers
from pipeline.roi.situation import Situation


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


TRAIN = "train on a tenth of the new samples first: two points of accept length fix the slope"


# Share of the step that a trained drafter adds: 3.3 of 33 ms in the pivot; 12 of 50 ms where the
# drafter runs eagerly beside a captured verify of a small target on a CPU.
DRAFT_COST = (1.10, 1.25)


def accept_levers(at: Situation, numbers: Numbers) -> Iterator[Gain]:
    """Yield what a longer accept length is worth at today's step time.

    Raises:
        ValueError: The accept length that is asked for exceeds the width, the samples are no more
            than there are, or the target has no known drafters.
    """
    if not at.copies_text:  # there is nothing to train
        yield _more_data(at, numbers)
        yield Gain(
            "training data of a domain that is missing",
            Side.ACCEPT,
            _change(at, 1.0, public.MISSING_DOMAIN),
            Range(1.0, public.MISSING_DOMAIN, Basis.PUBLIC, _CARD_DOMAIN),
            "measure accept length by workload class: a class far below the others is the gap",
        )
    yield _another_drafter(at, numbers)
    if at.width > at.accept_length:
        yield Gain(
            "every draft token accepted",
            Side.ACCEPT,
            f"accept length {number(at.accept_length)} → {at.width}",
            known(at.width / at.accept_length, Basis.BOUND, f"a step commits {at.width} at most"),
            "serve another drafter for one class of your own prompts and read its accept length",
            limits=True,
        )
    target = numbers.get("accept_length_to")
    if target is not None:
        if at.width and target > at.width:
            raise ValueError(f"accept_length_to={target:g}: at most the width, {at.width}")
        yield Gain(
            f"accept length {number(target)}",
            Side.ACCEPT,
            f"{number(at.accept_length)} → {number(target)}",
            known(target / at.accept_length, Basis.ASSUMED, "accept_length_to"),
            "nothing: you gave one number",
        )


_CARD_DOMAIN = public.K25_CARD + " (CEval 1.48 → 2.30 once its domain was in the data)"


def _more_data(at: Situation, numbers: Numbers) -> Gain:
    """Return what more samples of the same domains are worth.

    Raises:
        ValueError: The samples that are asked for are no more than there are.
    """
    samples, wanted = numbers.get("samples"), numbers.get("samples_to")
    factor = wanted / samples if samples and wanted else 2.0
    if factor <= 1:
        raise ValueError(
            f"samples_to={wanted:.0f}: must be more than samples={samples:.0f}, which you have"
        )
    low, high = public.more_data(factor)
    named = f"{samples:.0f} → {wanted:.0f} samples" if samples and wanted else "twice the samples"
    return Gain(
        f"more training data ({named})",
        Side.ACCEPT,
        _change(at, low, high),
        Range(
            low,
            high,
            Basis.PUBLIC,
            f"low: {public.K25_CARD} (300k → 600k samples); high: 8x data is about +22 %,"
            f" {public.EAGLE3_PAPER}",
        ),
        TRAIN,
    )


def _another_drafter(at: Situation, numbers: Numbers) -> Gain:
    """Return what a published drafter is worth, at today's draft cost.

    Raises:
        ValueError: The target is not one whose drafters are known.
    """
    target = numbers.words.get("target")
    low, high = public.EAGLE3_ACCEPT
    source = "EAGLE-3 at 3 steps, 10th to 90th percentile of 88 cells: " + public.SPECBUNDLE
    if target is not None:
        if target not in public.PUBLISHED_DRAFTERS:
            known_targets = ", ".join(public.PUBLISHED_DRAFTERS)
            raise ValueError(f"target={target}: published drafters are known of {known_targets}")
        low, high, source = public.PUBLISHED_DRAFTERS[target]
    change = f"accept length {number(at.accept_length)} → {number(low)}–{number(high)}"
    least, most = 1.0, 1.0
    if at.copies_text:
        (least, most), change = DRAFT_COST, f"{change}, and 10–25 % more step to draft"
    return Gain(
        "a trained drafter as published" if at.copies_text else "another drafter, a published one",
        Side.ACCEPT,
        change,
        Range(low / at.accept_length / most, high / at.accept_length / least, Basis.PUBLIC, source),
        "serve that drafter for one class of your own prompts and read its accept length",
    )


def _change(at: Situation, low: float, high: float) -> str:
    """Write what accept length becomes."""
    now = at.accept_length
    return f"{number(now)} → {number(now * low)}–{number(now * high)}"
