"""Record a reference, and compare a measured grid with it: counts exactly, times as ratios.

A reference holds a grid's exact responses, and the figures of each recorded run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from pipeline.config.compose import Job
from pipeline.config.messages import folded
from pipeline.gate.arm import ABSOLUTE, Arm, absolutes, as_json, ratios, summary
from pipeline.gate.decision.over_runs import RunFigure, against_recorded, run_figure
from pipeline.gate.decision.sequential import MetricVerdict, Verdict
from pipeline.gate.exact import Text, exact_findings
from pipeline.gate.outcome import Outcome, verdict_of
from pipeline.gate.settings import GateSettings
from pipeline.gate.validity import differences, pairs
from pipeline.machine.provenance import UNKNOWN, digest, known_commit, machine_class
from pipeline.record.record import write_atomically

MODE = "recorded reference"
ELSEWHERE = "another machine, or another state of it: absolute tok/s are not compared"
FORMAT = 1
MOST_RUNS = 12  # more tell a run's spread hardly better


@dataclass(frozen=True)
class Run:
    """The figures of one recorded run.

    Attributes:
        fingerprint: The machine's.
        commit: The version's; "" where it is unknown.
        figures: By name: ratios within the run, and absolute ones (`pipeline.gate.arm`).
    """

    fingerprint: str
    commit: str
    figures: dict[str, RunFigure]


@dataclass(frozen=True)
class Reference:
    """A version's cells with their exact responses, and the figures of one run or more.

    Attributes:
        arms: The cells as the first recorded run had them.
        machine: Facts of the machine and the code of that run (`pipeline.machine.provenance.here`).
        runs: The recorded runs, one at least.
    """

    arms: tuple[Arm, ...]
    machine: dict[str, str]
    runs: tuple[Run, ...]

    @property
    def threads(self) -> str:
        """CPU threads that its cells ran on; "" for an engine that has none."""
        threads = {a.settings.get("threads", "") for a in self.arms}
        return threads.pop() if len(threads) == 1 else ""

    def with_run(self, later: Reference) -> Reference:
        """Return this reference with the runs of a later one of equal responses."""
        return replace(self, runs=(*self.runs, *later.runs)[-MOST_RUNS:])

    def differences(self, later: Reference) -> list[str]:
        """Return why the runs of a later recording do not belong to this one; none if they do."""
        if machine_class(self.machine) != machine_class(later.machine):
            return ["machine class"]
        unequal = differences(later.arms, self.arms, recorded=True)
        if not unequal:
            for ours, theirs in zip(later.arms, self.arms, strict=True):
                unequal += map(str, exact_findings(ours, theirs, str))
        return unequal


def new_reference(arms: Sequence[Arm], machine: dict[str, str]) -> Reference:
    """Return the reference of one run."""
    run = Run(machine["fingerprint"], known_commit(machine), figures(arms))
    return Reference(tuple(arms), machine, (run,))


def figures(arms: Sequence[Arm]) -> dict[str, RunFigure]:
    """Return a run's figures; those with a prompt that was not repeated are left out."""
    return {
        name: run_figure(rows)
        for name, rows in (*ratios(arms), *absolutes(arms))
        if rows and min(len(repeated) for repeated in rows) > 1
    }


def grid_digest(jobs: Sequence[Job]) -> str:
    """Return a short name of a grid, the same for the same overrides on any machine."""
    return digest(sorted(sorted(job) for job in jobs))


def answers_digest(arms: Sequence[Arm]) -> str:
    """Hash what must be equal exactly: each response's tokens, and the tokens of each step."""
    return digest(
        [
            [a.label, prompt, answer.tokens, answer.committed]
            for a in arms
            for prompt, answer in sorted(a.answers.items())
        ]
    )


def dump(reference: Reference) -> str:
    """Write a reference as JSON, with a line for each prompt's response and each run."""
    data = {
        "format": FORMAT,
        "machine": reference.machine,
        "cells": [as_json(cell) for cell in reference.arms],
        "runs": [asdict(run) for run in reference.runs],
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("},", "},\n") + "\n"


def load(data: bytes, name: str) -> Reference:
    """Read a reference from JSON.

    Args:
        data: What a file holds.
        name: The setting and its value, for the line that refuses it.

    Raises:
        ValueError: It is none, damaged, or of another format; the line names the field.
    """
    try:
        written = TypeAdapter(_Head).validate_json(data, strict=True).format
        if written != FORMAT:
            raise ValueError(f"format {written}, this version reads {FORMAT}")
        # A field of a later version may change what the others mean, so it is refused.
        file = TypeAdapter(_File).validate_json(data, strict=True, extra="forbid")
        _check_steps(file.cells)
    except ValidationError as error:
        raise ValueError(_refused(name, _damage(error))) from None
    except ValueError as error:
        raise ValueError(_refused(name, str(error))) from None
    return Reference(file.cells, file.machine, file.runs)


@dataclass(frozen=True)
class _Head:
    """The part of a file that says how to read the rest."""

    format: int


@dataclass(frozen=True)
class _File(_Head):
    """A reference as its file holds it."""

    machine: dict[str, str]
    cells: Annotated[tuple[Arm, ...], Field(min_length=1)]
    runs: Annotated[tuple[Run, ...], Field(min_length=1)]


def _check_steps(cells: Sequence[Arm]) -> None:
    """Refuse a response whose steps committed other than its tokens after the first."""
    for cell in cells:
        for prompt, answer in cell.answers.items():
            if sum(answer.committed) != max(len(answer.tokens) - 1, 0):
                raise ValueError(
                    f"{cell.label}, {prompt}: its steps committed {sum(answer.committed)} tokens,"
                    f" and {len(answer.tokens)} are kept"
                )


def _damage(error: ValidationError) -> str:
    """Return the first thing that is wrong with a file, and the field in which."""
    first, *more = error.errors(include_url=False, include_context=False)
    what = "not an object" if first["type"] == "dataclass_type" else folded(first["msg"])
    place = ".".join(map(str, first["loc"]))
    others = f", and {len(more)} more" if more else ""
    return f"{place}: {what}{others}" if place else f"{what}{others}"


def _refused(name: str, reason: str) -> str:
    return (
        f"{name}: not a recorded reference ({reason});"
        " record one with gate.record=true record_to=FILE"
    )


def read(path: str, setting: str = "reference") -> Reference:
    """Read a reference from a file.

    Args:
        path: The file.
        setting: The setting that names it.

    Raises:
        ValueError: There is none, or it is damaged.
    """
    try:
        data = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ValueError(
            f"{setting}={path}: {error.strerror}; record one with gate.record=true record_to={path}"
        ) from None
    return load(data, f"{setting}={path}")


def write(reference: Reference, path: str) -> None:
    """Write a reference to a file, whole or not at all."""
    write_atomically(Path(path).expanduser().absolute(), dump(reference))


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
    same = all(run.fingerprint == machine["fingerprint"] for run in reference.runs)
    verdicts = _verdicts(arms, reference, same, settings) if both else []
    return Outcome(
        verdict=verdict_of(unequal, findings, _times(verdicts)),
        mode=MODE,
        candidate=_version(machine),
        reference=f"{_version(reference.machine)}, {len(reference.runs)} runs recorded",
        promise=settings.promise,
        differences=unequal,
        findings=findings,
        timed=verdicts,
        arms=both,
        notes=[] if same else [ELSEWHERE],
        advice="" if unequal else _advice(verdicts, settings),
        figures=summary(arms),
        measured="one run, each prompt repeated as measurement says",
    )


def _verdicts(
    arms: Sequence[Arm],
    reference: Reference,
    same: bool,
    settings: GateSettings,
) -> list[MetricVerdict]:
    """Return the verdict on each figure that the candidate and every recorded run have.

    Absolute figures count only where every recorded run is of the `same` machine as this one.
    """
    ours = {
        name: figure
        for name, figure in figures(arms).items()
        if (same or not name.endswith(ABSOLUTE))
        and all(name in run.figures for run in reference.runs)
    }
    theirs = {name: [run.figures[name] for run in reference.runs] for name in ours}
    declared = (len(ours), settings.promise, settings.run_noise)
    return [against_recorded(name, ours[name], theirs[name], *declared) for name in ours]


def _times(verdicts: Sequence[MetricVerdict]) -> Verdict:
    """Return the verdict on all times together: none at all are undecided."""
    kinds = {v.verdict for v in verdicts}
    if Verdict.REGRESSION in kinds:
        return Verdict.REGRESSION
    return Verdict.PASS if kinds == {Verdict.PASS} else Verdict.UNDECIDED


def _machines(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return a line for each fact in which the classes of two machines differ."""
    now, then = machine_class(ours), machine_class(theirs)
    return [
        f"machine class: {name} is {now[name] or 'unknown'}, the reference's is"
        f" {then[name] or 'unknown'}"
        for name in now
        if now[name] != then[name]
    ]


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
