"""The command line's `key=value` numbers, checked before anything is computed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from drafters.base import CopiesText


class Key(NamedTuple):
    """One number that may be typed in.

    Attributes:
        meaning: What it is, with its unit; shown when something is wrong.
        least: The smallest possible value.
        open_end: The smallest value itself is impossible.
        whole: It counts something.
    """

    meaning: str
    least: float
    open_end: bool = True
    whole: bool = False


POSITIVE = 0.0
SMALLEST, LARGEST = 1e-6, 1e12  # a nanosecond in ms; more samples than there is text
KEYS: Mapping[str, Key] = {
    "baseline_tok_s": Key("tok/s of plain decoding at its best", POSITIVE),
    "accept_length": Key("tokens committed per verify step, bonus included", 1.0, False),
    "tok_s": Key("decode tok/s with the drafter", POSITIVE),
    "step_ms": Key("wall time of one step: verify, draft and host", POSITIVE),
    "verify_ms": Key("time of the target forward of a verify step", POSITIVE),
    "draft_ms": Key("time of the drafter in a step", 0.0, False),
    "host_ms": Key("the rest of a step", 0.0, False),
    "decode_ms": Key("device time of a plain decode forward", POSITIVE),
    "allreduce_ms": Key("time of all all-reduces of a verify step", POSITIVE),
    "allreduces": Key("all-reduces of a verify step", 1.0, False),
    "width": Key("rows of a verify step: draft tokens + 1", 2.0, False, whole=True),
    "hidden_size": Key("hidden size of the target", 1.0, False, whole=True),
    "batch": Key("requests in flight", 1.0, False, whole=True),
    "samples": Key("training samples of the drafter", 1.0, False),
    "samples_to": Key("training samples that you could have", 1.0, False),
    "accept_length_to": Key("accept length that you believe in", 1.0, False),
    "verify_ms_to": Key("verify time that you believe in", POSITIVE),
    "draft_ms_to": Key("draft time that you believe in", 0.0, False),
    "width_to": Key("rows of a narrower or wider verify step", 2.0, False, whole=True),
}
WORDS = {"drafter": "name of the drafter", "target": "kimi_k2_5 or kimi_k2, for public drafters"}
RATES = "accept_rate"


class Numbers(NamedTuple):
    """What was typed in.

    Attributes:
        values: The numbers by key.
        words: The names by key.
        accept_rate: Conditional accept rate by draft position, or ().
    """

    values: Mapping[str, float]
    words: Mapping[str, str]
    accept_rate: tuple[float, ...] = ()

    def get(self, key: str) -> float | None:
        """Return a number, or None if it was not given."""
        return self.values.get(key)


def parse(arguments: Iterable[str]) -> Numbers:
    """Read `key=value` arguments.

    Raises:
        ValueError: An unknown key, a repeated one, or an impossible value; one line that names it.
    """
    values: dict[str, float] = {}
    words: dict[str, str] = {}
    rates: tuple[float, ...] = ()
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals or key not in (*KEYS, *WORDS, RATES):
            raise ValueError(f"{argument}: not a number I know; give {', '.join((*KEYS, RATES))}")
        if key in values or key in words:
            raise ValueError(f"{key} is given twice: give it once")
        if key in WORDS:
            words[key] = text
        elif key == RATES:
            rates = tuple(_number(RATES, part, _share_fault) for part in text.split("/"))
        else:
            values[key] = _number(key, text, _key_fault(KEYS[key]))
    return Numbers(values, words, rates)


def _number(key: str, text: str, fault: Callable[[float], str]) -> float:
    """Read one number.

    Raises:
        ValueError: It is none, or it is impossible.
    """
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{key}={text}: not a number") from None
    reason = "must be finite" if not math.isfinite(value) else fault(value)
    if not reason and value and not SMALLEST <= abs(value) <= LARGEST:
        reason = f"too {'small' if value < SMALLEST else 'large'} to be one"
    if reason:
        raise ValueError(f"{key}={text}: {reason}")
    return value


def _share_fault(value: float) -> str:
    """Say why a number is no share, or ""."""
    if 0 <= value <= 1:
        return ""
    reason = "a rate by position is between 0 and 1, as in 0.6/0.4/0.3"
    if 1 < value <= 100:
        reason += f"; {value:g} looks like per cent: write {value / 100:g}"
    return reason


def _key_fault(key: Key) -> Callable[[float], str]:
    """Return a check of one key's range."""
    bound = f"more than {key.least:g}" if key.open_end else f"{key.least:g} or more"

    def fault(value: float) -> str:
        if key.whole and value != int(value):
            return f"{key.meaning}: a whole number"
        below = value <= key.least if key.open_end else value < key.least
        return f"{key.meaning} must be {bound}" if below else ""

    return fault


def copies_text(drafter: str) -> bool:
    """Return whether a drafter of this name copies text, as its config in `conf` says.

    Args:
        drafter: A name as people write it; hyphens and what follows the first word are left out.
            One without a config runs a model, as most do.
    """
    word = re.match(r"\w*", drafter.lower().replace("-", ""))
    if not word or not word[0]:
        return False
    # Hydra takes a while to load, and most numbers come without a name.
    from pipeline.config.compose import compose_each
    from pipeline.config.instantiate import build_part

    try:
        (config,) = compose_each([[f"drafter={word[0]}"]])
        part = build_part(config, "drafter")
    except ValueError:
        return False
    return isinstance(part, CopiesText) and part.copies_text
