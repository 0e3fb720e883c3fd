"""Where someone stands: the numbers of a speculative step, closed as far as they close."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pipeline.measure import Levers
from pipeline.roi.misreadings import misread
from pipeline.roi.numbers import Numbers, copies_text


@dataclass(frozen=True)
class Situation:
    """A drafter at work beside plain decoding, typed in or measured.

    Attributes:
        drafter: The drafter's name.
        baseline_tok_s: tok/s of plain decoding at its best, over all requests in flight.
        accept_length: Tokens committed per verify step, bonus included.
        tok_s: Decode tok/s with the drafter, over all requests in flight.
        step_ms: Wall time of a step.
        verify_ms: Time of its target forward; NaN where it is not known.
        width: Rows of a verify step; 0 where it is not known.
        decode_ms: Device time of a plain decode forward; NaN where it is not known.
        allreduce_ms: Time of all all-reduces of a verify step; NaN where it is not known.
        allreduces: How many there are; 0 where it is not known.
        hidden_size: The target's hidden size; 0 where it is not known.
        batch: Requests in flight.
        draft_ms: Time of the drafter in a step; NaN where it is not known apart from host time.
        copies_text: Whether the drafter copies text instead of running a model.
        captured: Whether verify steps are known to be replayed from a capture.
        assumptions: What had to be assumed to close the numbers, in words.
    """

    drafter: str
    baseline_tok_s: float
    accept_length: float
    tok_s: float
    step_ms: float
    verify_ms: float = math.nan
    width: int = 0
    decode_ms: float = math.nan
    allreduce_ms: float = math.nan
    allreduces: float = 0.0
    hidden_size: int = 0
    batch: int = 1
    draft_ms: float = math.nan
    copies_text: bool = False
    captured: bool = False
    assumptions: tuple[str, ...] = ()

    @property
    def ms_per_token(self) -> float:
        """Wall time of a plain decode step, in which each request gets one token."""
        return 1000 * self.batch / self.baseline_tok_s

    @property
    def speed_up(self) -> float:
        """`tok_s / baseline_tok_s`."""
        return self.tok_s / self.baseline_tok_s

    @property
    def levers(self) -> Levers:
        """The same numbers with the product's formulas of break-even."""
        return Levers(
            accept_length=self.accept_length,
            width=self.width,
            step_ms=self.step_ms,
            verify_ms=self.verify_ms,
            ms_per_token=self.ms_per_token,
            decode_ms=self.decode_ms,
        )

    @property
    def overhead_ms(self) -> float:
        """Draft and host time of a step: what verify leaves of it. Negative: the numbers clash."""
        return self.step_ms - self.verify_ms

    @property
    def plain_forward_ms(self) -> float:
        """Most that a plain decode forward takes: its device time, else its whole wall time."""
        return self.ms_per_token if math.isnan(self.decode_ms) else self.decode_ms

    @property
    def message_kib(self) -> float:
        """Size of one all-reduce of the verify step in KiB, bf16; NaN where it is not known."""
        rows = self.width * self.batch
        return rows * self.hidden_size * 2 / 1024 if rows and self.hidden_size else math.nan

    def speed_of(self, accept_length: float, step_ms: float) -> float:
        """Return the tok/s of another accept length and step."""
        return 1000 * self.batch * accept_length / step_ms


def close(numbers: Numbers) -> Situation:
    """Close typed-in numbers: two of accept length, tok/s and step time give the third.

    Raises:
        ValueError: Too few numbers, in one line that says which are missing.
    """
    baseline = numbers.get("baseline_tok_s")
    if baseline is None:
        raise ValueError("baseline_tok_s is missing: without plain decoding nothing breaks even")
    assumptions: list[str] = []
    step = _step_ms(numbers, assumptions)
    length, tok_s = numbers.get("accept_length"), numbers.get("tok_s")
    batch = int(numbers.values.get("batch", 1))
    if length is None and tok_s is not None and step is not None:
        length = tok_s * step / 1000 / batch
        assumptions.append(f"accept length {length:.2f} follows from tok/s × step time")
    if length is None:
        raise ValueError("accept_length is missing: give it, or tok_s and verify_ms")
    misread(numbers)
    width = numbers.get("width")
    if width is not None and length > width:
        raise ValueError(
            f"accept_length={length:.2f}: a step of width={width:.0f} commits at most as many"
            " tokens; width counts the root"
        )
    if tok_s is not None and numbers.get("accept_length") is not None:
        step = 1000 * batch * length / tok_s  # the wall's own figure beats a sum of parts
    elif step is None:
        raise ValueError("tok_s is missing: give it, or step_ms, or verify_ms and draft_ms")
    return _situation(numbers, baseline, length, step, tuple(assumptions))


def _step_ms(numbers: Numbers, assumptions: list[str]) -> float | None:
    """Return the step time that is given outright or as parts, or None."""
    step, verify = numbers.get("step_ms"), numbers.get("verify_ms")
    if step is not None or verify is None:
        return step
    draft, host = numbers.get("draft_ms"), numbers.get("host_ms")
    if numbers.get("accept_length") is None or numbers.get("tok_s") is None:
        missing = [n for n, v in (("draft", draft), ("host", host)) if v is None]
        if missing:
            bounds = "accept length and step time are lower bounds"
            if numbers.get("accept_length") is not None:
                bounds = "step time is a lower bound and tok/s an upper one"
            assumptions.append(
                f"{' and '.join(missing)} time is not given and counted as 0: {bounds}"
            )
    return verify + (draft or 0.0) + (host or 0.0)


def _situation(
    numbers: Numbers, baseline: float, length: float, step: float, assumptions: tuple[str, ...]
) -> Situation:
    """Build the situation from closed numbers."""
    values = numbers.values
    return Situation(
        drafter=numbers.words.get("drafter", "the drafter"),
        baseline_tok_s=baseline,
        accept_length=length,
        tok_s=1000 * int(values.get("batch", 1)) * length / step,
        step_ms=step,
        verify_ms=values.get("verify_ms", math.nan),
        width=int(values.get("width", 0)),
        decode_ms=values.get("decode_ms", math.nan),
        allreduce_ms=values.get("allreduce_ms", math.nan),
        allreduces=values.get("allreduces", 0.0),
        hidden_size=int(values.get("hidden_size", 0)),
        batch=int(values.get("batch", 1)),
        draft_ms=values.get("draft_ms", math.nan),
        copies_text=copies_text(numbers.words.get("drafter", "")),
        assumptions=assumptions,
    )
