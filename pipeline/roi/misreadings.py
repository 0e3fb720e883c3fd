"""Typed-in numbers that say more than enough: held against each other, the likely slip named."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Sequence

from pipeline.roi.numbers import Numbers

CLOSE = 0.012  # numbers that people quote have three digits
APART = 0.06  # two digits each, twice
CLEAR = 0.02  # apart from one reading, where another one is close


def misread(numbers: Numbers) -> None:
    """Refuse numbers that contradict each other.

    Raises:
        ValueError: Naming the number that was probably misread and how to write it.
    """
    for sentences in (_width(numbers), _rates(numbers), _length(numbers), _parts(numbers)):
        for sentence in sentences:
            raise ValueError(sentence)


def length_of(rates: Sequence[float]) -> float:
    """Return the accept length of conditional rates by position: `1 + Σ Π rate`."""
    return 1 + math.fsum(itertools.accumulate(rates, operator.mul))


def _off(one: float, other: float) -> float:
    """Return how far apart two numbers are, as a share."""
    return abs(one - other) / max(abs(one), abs(other), 1e-30)


def _width(numbers: Numbers) -> Iterator[str]:
    """Yield a width that counts other rows than the rates have positions."""
    width, length, rates = numbers.get("width"), numbers.get("accept_length"), numbers.accept_rate
    if width is None:
        return
    if rates and len(rates) >= width:
        yield (
            f"width={width:.0f}: accept_rate has {len(rates)} positions, and a step of that width"
            f" drafts {width - 1:.0f}; width counts the root: draft tokens + 1, so"
            f" width={len(rates) + 1}"
        )
    full = length is not None and len(rates) == width - 2 and rates[-1:] > (0.05,)
    if full and length is not None and _off(length_of(rates), length) < CLOSE:
        yield (
            f"width={width:.0f}: accept_rate has {len(rates)} positions and explains accept_length"
            f"={length:g} whole; SGLang's speculative_num_draft_tokens counts the root already:"
            f" width={len(rates) + 1}"
        )


def _rates(numbers: Numbers) -> Iterator[str]:
    """Yield rates by position that do not give the accept length."""
    given, rates = numbers.get("accept_length"), numbers.accept_rate
    if given is None or not rates:
        return
    told, width = length_of(rates), numbers.get("width")
    partial = width is not None and len(rates) < width - 1  # later positions may add to it
    off = _off(told, given)
    if off <= CLEAR or (partial and told < given and _off(1 + sum(rates), given) > CLOSE):
        return
    said = f"accept_rate gives accept length {told:.2f}, and accept_length={given:g}"
    rising = all(a >= b for a, b in itertools.pairwise(rates))
    if rising and _off(1 + sum(rates), given) < CLOSE:
        conditional = [b / a if a else 0.0 for a, b in itertools.pairwise((1.0, *rates))]
        yield (
            f"{said}: these look like shares of all steps (one plus their sum is"
            f" {1 + sum(rates):.2f}); accept_rate is given that the position before was accepted:"
            f" {'/'.join(f'{rate:.3f}' for rate in conditional)}"
        )
    if _off(told - 1, given) < CLOSE:
        yield f"{said}: it looks counted without the bonus token: accept_length={given + 1:g}"
    if _off(told + 1, given) < CLOSE:
        yield f"{said}: it looks as if the bonus token was counted twice: {given - 1:g}"
    if width is not None and _off(told, 1 + given * (width - 1)) < CLOSE:
        yield f"{said}: it looks like the share of draft tokens that were accepted, not a length"
    if off > APART:
        yield f"{said}: one of them is wrong"


def _length(numbers: Numbers) -> Iterator[str]:
    """Yield an accept length that is not tok/s × step time."""
    names = ("accept_length", "tok_s", "step_ms")
    length, tok_s, step = (numbers.get(name) for name in names)
    if length is None or tok_s is None or step is None:
        return
    batch = numbers.values.get("batch", 1.0)
    told = tok_s * step / 1000 / batch
    if _off(told, length) <= APART:
        return
    said = (
        f"tok_s × step_ms is {told:.3g} tokens a step of each request, and accept_length={length:g}"
    )
    if batch > 1 and _off(told * batch, length) <= APART:
        yield (
            f"{said}: tok_s={tok_s:g} looks like that of one request; it is over all {batch:.0f} in"
            f" flight, as baseline_tok_s is: tok_s={tok_s * batch:g}"
        )
    yield from _scaled("step_ms", step, told, length, said)
    if _off(told, length + 1) <= CLEAR:
        yield f"{said}: it looks counted without the bonus token: accept_length={length + 1:g}"
    if _off(told, 1.0) <= CLOSE:
        yield f"{said}: step_ms={step:g} looks like the time of a token: step_ms={step * length:g}"
    many = round(told / length)
    if "batch" not in numbers.values and many > 1 and _off(told / many, length) <= CLEAR:
        yield f"{said}: tok_s looks like that of {many} requests together: give batch={many}"
    yield f"{said}: one of the three is wrong"


def _parts(numbers: Numbers) -> Iterator[str]:
    """Yield parts of a step that do not add up to it."""
    step, verify = _step(numbers), numbers.get("verify_ms")
    if step is None or verify is None:
        return
    others = [value for name in ("draft_ms", "host_ms") if (value := numbers.get(name)) is not None]
    total = verify + sum(others)
    said = f"a step takes {step:.4g} ms"
    if verify < 0.01 * step and 0.2 * step <= 1000 * verify <= (1 + APART) * step:
        yield (
            f"verify_ms={verify:g}: {said}, so this looks like seconds: verify_ms={1000 * verify:g}"
        )
    if 0.2 * step <= verify / 1000 <= (1 + APART) * step:
        yield f"verify_ms={verify:g}: {said}, so this looks like µs: verify_ms={verify / 1000:g}"
    for name in ("draft_ms", "host_ms"):
        part = numbers.get(name)
        if part is not None and part > 10 * step and part / 1000 <= step:
            yield f"{name}={part:g}: {said}, so this looks like µs: {name}={part / 1000:g}"
    if others and _off(verify, step) <= CLEAR and sum(others) > APART * step:
        yield (
            f"verify_ms={verify:g} is the whole step's time ({said}), draft and host included;"
            f" verify_ms={max(step - sum(others), 0):.4g}"
        )
    if (len(others) == 2 and _off(total, step) > APART) or (
        others and verify <= step < total * (1 - APART)
    ):
        yield f"verify_ms and the parts beside it are {total:.4g} ms and {said}: one is wrong"


def _step(numbers: Numbers) -> float | None:
    """Return the step's time as given, or from accept length and tok/s; None where neither is."""
    step, length, tok_s = (numbers.get(name) for name in ("step_ms", "accept_length", "tok_s"))
    if step is None and length is not None and tok_s is not None:
        return 1000 * numbers.values.get("batch", 1.0) * length / tok_s
    return step


def _scaled(name: str, value: float, told: float, length: float, said: str) -> Iterator[str]:
    """Yield a time in another unit."""
    for unit, factor in (("seconds", 1000.0), ("µs", 1 / 1000)):
        if math.isclose(told * factor, length, rel_tol=APART):
            yield f"{said}: {name}={value:g} looks like {unit}: {name}={value * factor:g}"
