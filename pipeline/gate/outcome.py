"""The outcome of a run of the gate, from which every output is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.gate.arm import Arm
from pipeline.gate.decision.promise import Promise
from pipeline.gate.decision.sequential import MetricVerdict
from pipeline.gate.exact import Finding


class GateVerdict(StrEnum):
    """The verdict on a version."""

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
class Outcome:
    """The outcome of a run of the gate.

    Attributes:
        verdict: The verdict on the candidate.
        mode: `side by side` or `recorded reference`.
        candidate: Name of the tested version.
        reference: Name of the version, or recording, that it was compared with.
        promise: The error rates and sizes declared for the timed metrics.
        differences: A line for each reason why the two cannot be compared.
        findings: Exact things that changed.
        timed: The verdict on each timed metric.
        arms: Each cell of the candidate and of the reference, as far as they ran.
        notes: Lines that a reader of the verdict must know.
        advice: The next step where nothing was decided; "" otherwise.
        figures: Ratios within the candidate's run, by name, of which more is worse: for the trend.
        seconds: Wall time.
        measured: How much was measured, in words.
    """

    verdict: GateVerdict
    mode: str
    candidate: str
    reference: str
    promise: Promise
    differences: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    timed: Sequence[MetricVerdict] = ()
    arms: Sequence[tuple[Arm, Arm]] = ()
    notes: Sequence[str] = ()
    advice: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    measured: str = ""

    @property
    def status(self) -> int:
        """The exit status."""
        return EXIT[self.verdict]
