"""What a run of the gate came to; every output is written from this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.gate.arm import Arm
from pipeline.gate.decision.promise import Promise
from pipeline.gate.exact import Finding


class GateVerdict(StrEnum):
    """The gate's verdict."""

    PASS = "pass"
    REGRESSION = "regression"
    NOT_COMPARABLE = "not comparable"
    UNDECIDED = "undecided"


EXIT = {
    GateVerdict.PASS: 0,
    GateVerdict.REGRESSION: 1,
    GateVerdict.NOT_COMPARABLE: 2,
    GateVerdict.UNDECIDED: 2,
}


@dataclass(frozen=True)
class Timed:
    """One timed metric; slow-downs are shares, 0.05 is 5 % more time.

    Attributes:
        name: Cell and figure.
        candidate: The candidate's figure in ms, or a ratio within its run.
        reference: The reference's.
        slow_down: Estimate.
        at_least: Slow-down that is proven.
        at_most: Slow-down above which all is ruled out.
        verdict: `regression`, `pass` or `undecided`.
        power: What the run could find, in words.
    """

    name: str
    candidate: float
    reference: float
    slow_down: float
    at_least: float
    at_most: float
    verdict: str
    power: str


@dataclass(frozen=True)
class Outcome:
    """What a run of the gate came to.

    Attributes:
        answer: The verdict.
        mode: `side by side` or `recorded reference`.
        candidate: The tested version, for people.
        reference: What it was compared with.
        promise: What was declared of the timed metrics.
        differences: Why the two cannot be compared.
        findings: Exact things that changed.
        timed: The timed metrics.
        arms: Each cell of the candidate and of the reference, as far as they ran.
        notes: What a reader must know beside the verdict.
        advice: What to do where nothing was decided; "" otherwise.
        figures: Ratios within the candidate's run, by name, of which more is worse: for the trend.
        seconds: Wall time.
        measured: How much was measured, in words.
    """

    answer: GateVerdict
    mode: str
    candidate: str
    reference: str
    promise: Promise
    differences: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    timed: Sequence[Timed] = ()
    arms: Sequence[tuple[Arm, Arm]] = ()
    notes: Sequence[str] = ()
    advice: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    measured: str = ""

    @property
    def status(self) -> int:
        """The exit status."""
        return EXIT[self.answer]
