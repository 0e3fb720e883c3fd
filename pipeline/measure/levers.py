"""What a speed-up is made of, and how far each lever could move it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Levers:
    """A speculative step beside a plain decode step; measured, or numbers that someone read.

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
