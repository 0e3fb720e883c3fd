"""Compare a measured grid with a recorded reference: counts exactly, times as ratios in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.gate.arm import Arm
from pipeline.gate.comparable import differences, pairs
from pipeline.gate.decision.prediction import against_recorded
from pipeline.gate.decision.sequential import MetricVerdict, Verdict
from pipeline.gate.exact import Text, exact_findings
from pipeline.gate.figures import ABSOLUTE, summary
from pipeline.gate.outcome import GateVerdict, Outcome
from pipeline.gate.reference import Reference, figures
from pipeline.gate.settings import GateSettings
from pipeline.machine.provenance import UNKNOWN, known_commit, machine_class

MODE = "recorded reference"


def compare_recorded(
    arms: Sequence[Arm],
    failures: Sequence[str],
    reference: Reference,
    machine: Mapping[str, str],
    settings: GateSettings,
    text: Text,
) -> Outcome:
    """Compare a measured grid with a recorded reference.

    Args:
        arms: The candidate's cells.
        failures: A line for each of its cells that did not run.
        reference: The recorded cells and runs.
        machine: Facts of this machine (`pipeline.machine.provenance.here`).
        settings: The gate's settings.
        text: Gives a token's text by its id.
    """
    unequal = [*failures, *_machines(machine, reference.machine)]
    unequal += differences(arms, reference.arms, recorded=True)
    both = [] if unequal else pairs(arms, reference.arms)
    findings = [f for ours, theirs in both for f in exact_findings(ours, theirs, text)]
    verdicts = _verdicts(arms, reference, machine, settings) if both else []
    return Outcome(
        verdict=_verdict(unequal, any(f.fails for f in findings), verdicts),
        mode=MODE,
        candidate=_version(machine),
        reference=f"{_version(reference.machine)}, {len(reference.runs)} runs recorded",
        promise=settings.promise,
        differences=unequal,
        findings=findings,
        timed=verdicts,
        arms=both,
        notes=_notes(reference, machine),
        advice="" if unequal else _advice(verdicts, settings),
        figures=summary(arms),
        measured="one run, each prompt repeated as measurement says",
    )


def _verdicts(
    arms: Sequence[Arm],
    reference: Reference,
    machine: Mapping[str, str],
    settings: GateSettings,
) -> list[MetricVerdict]:
    """Return the verdict on each figure that the candidate and every recorded run have.

    Absolute figures count only where every recorded run is of this very machine.
    """
    same = all(run.fingerprint == machine["fingerprint"] for run in reference.runs)
    ours = {
        name: figure
        for name, figure in figures(arms).items()
        if (same or not name.endswith(ABSOLUTE))
        and all(name in run.figures for run in reference.runs)
    }
    theirs = {name: [run.figures[name] for run in reference.runs] for name in ours}
    declared = (len(ours), settings.promise, settings.run_noise)
    return [against_recorded(name, ours[name], theirs[name], *declared) for name in ours]


def _verdict(
    differences: Sequence[str], fails: bool, verdicts: Sequence[MetricVerdict]
) -> GateVerdict:
    """Return the verdict: differences come first, then findings, then times."""
    kinds = {v.verdict for v in verdicts}
    if differences:
        return GateVerdict.NOT_COMPARABLE
    if fails or Verdict.REGRESSION in kinds:
        return GateVerdict.REGRESSION
    return GateVerdict.PASS if kinds == {Verdict.PASS} else GateVerdict.UNDECIDED


def _machines(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return a line for each fact in which the classes of two machines differ."""
    now, then = machine_class(ours), machine_class(theirs)
    return [
        f"machine class: {name} is {now[name] or 'unknown'}, the reference's is"
        f" {then[name] or 'unknown'}"
        for name in now
        if now[name] != then[name]
    ]


def _notes(reference: Reference, machine: Mapping[str, str]) -> list[str]:
    """Return the note that absolute times were left out, where they were."""
    if all(run.fingerprint == machine["fingerprint"] for run in reference.runs):
        return []
    return ["another machine, or another state of it: absolute tok/s are not compared"]


def _advice(verdicts: Sequence[MetricVerdict], settings: GateSettings) -> str:
    """Return the setting or the runs that would decide what is open; "" where all is decided."""
    if not verdicts:
        return (
            "undecided: no time was compared; that needs drafter=none in the grid and"
            " measurement.min_repetitions=2 or more, here and in the reference"
        )
    worst = max((v.judges for v in verdicts if v.verdict is Verdict.UNDECIDED), default=0.0)
    if not worst:
        return ""
    few = verdicts[0].rests_on
    return (
        f"undecided: runs like these judge slow-downs from {worst:.1%} on, gate.min_effect is"
        f" {settings.promise.min_effect:.1%}; record more runs of the reference ({few} now, 6 let"
        " their own spread count), or measure side by side with baseline=GIT_REF"
    )


def _version(facts: Mapping[str, str]) -> str:
    """Name a version by its commit, or say why that is not known."""
    commit = known_commit(facts)
    if not commit:
        return f"a version whose commit is {facts.get('commit', UNKNOWN)}"
    return f"{commit[:7]}{' and changes' if facts.get('dirty') == 'true' else ''}"
