"""Compute a cell's speed-up over the best baseline on shared prompts, and the levers that make it.

`versus` compares measured cells, with an interval that draws the same prompts in both. `Levers`
holds the quantities of which speed-up and break-even are made, measured or typed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.measure.prompts import (
    PromptResponses,
    decode_s,
    num_committed,
    num_steps,
    ratio,
    total,
)
from pipeline.measure.statistics import Interval, bootstrap


@dataclass(frozen=True)
class Versus:
    """A cell against plain decoding: the fastest `none` cell of the same comparison.

    Attributes:
        baseline: The best baseline's label.
        baseline_tok_s: Its decode tok/s.
        speed_up: `tok_s / baseline_tok_s`; its interval draws the same prompts in both cells.
        levers: What the speed-up is made of; break-even is here.
    """

    baseline: str
    baseline_tok_s: float
    speed_up: Interval
    levers: Levers


def versus(
    label: str,
    cell: Sequence[PromptResponses],
    baseline: Sequence[PromptResponses],
    width: int,
) -> Versus | None:
    """Compare on the prompts that both cells answered with a verify step; None if there is none."""
    plain_by_id = {p.id: p for p in baseline}
    cell = [p for p in cell if p.id in plain_by_id]
    if not cell:
        return None
    plain = [plain_by_id[p.id] for p in cell]
    speed, plain_speed = (ratio(side, num_committed, decode_s) for side in (cell, plain))
    plain_s, steps = total(plain, decode_s), total(cell, num_steps)
    return Versus(
        baseline=label,
        baseline_tok_s=total(plain, num_committed) / plain_s,
        speed_up=bootstrap(lambda w: speed(w) / plain_speed(w), [p.category for p in cell]),
        levers=Levers(
            accept_length=total(cell, num_committed) / steps,
            width=width,
            step_ms=total(cell, lambda r: sum(r.step_ms)) / steps,
            verify_ms=total(cell, lambda r: sum(r.verify_ms)) / steps,
            ms_per_token=1000 * plain_s / total(plain, num_committed),
            decode_ms=total(plain, lambda r: sum(r.verify_ms)) / total(plain, num_steps),
        ),
    )


@dataclass(frozen=True)
class Levers:
    """A speculative step and a plain decode step in numbers, measured or typed in.

    Attributes:
        accept_length: Tokens committed per verify step, bonus included.
        width: Rows of a verify step: draft tokens + 1.
        step_ms: Wall time of a step: verify, draft and host.
        verify_ms: Device time of the target forward of a step.
        ms_per_token: Wall time per token of plain decoding, at its best.
        decode_ms: Device time of its forward.
    """

    accept_length: float
    width: int
    step_ms: float
    verify_ms: float
    ms_per_token: float
    decode_ms: float

    @property
    def break_even(self) -> float:
        """Accept length at which speculation is as fast as plain decoding.

        `step_ms / ms_per_token`
        """
        return self.step_ms / self.ms_per_token

    @property
    def break_even_floor(self) -> float:
        """Lower bound of `break_even`, as if drafter and host cost nothing; often quoted as it.

        `verify_ms / ms_per_token`
        """
        return self.verify_ms / self.ms_per_token

    @property
    def needed_step_ms(self) -> float:
        """Step time at which this accept length is as fast as plain decoding.

        `accept_length * ms_per_token`
        """
        return self.accept_length * self.ms_per_token

    @property
    def limit_of_verify(self) -> float:
        """Most that a cheaper verify step can give: the speed-up if it cost one plain forward.

        `needed_step_ms / (step_ms - verify_ms + decode_ms)`
        """
        return self.needed_step_ms / (self.step_ms - self.verify_ms + self.decode_ms)

    @property
    def limit_of_overhead(self) -> float:
        """Most that less draft and host time can give: the speed-up if they were nothing.

        `accept_length / break_even_floor`
        """
        return self.accept_length / self.break_even_floor

    @property
    def limit_of_drafter(self) -> float:
        """Most that a better drafter can give: the speed-up if every draft token were accepted.

        `width / break_even`, at this step's cost.
        """
        return self.width / self.break_even
