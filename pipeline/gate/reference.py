"""A recorded reference: what a grid gave, exactly, and the figures of each recorded run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.config.compose import Job
from pipeline.config.messages import one_line
from pipeline.gate.arm import Arm, from_plain, plain
from pipeline.gate.comparable import differences
from pipeline.gate.decision.prediction import RunFigure, run_figure
from pipeline.gate.exact import exact_findings
from pipeline.gate.figures import absolutes, ratios
from pipeline.machine.provenance import machine_class
from pipeline.record.record import write_atomically

FORMAT = 1
MOST_RUNS = 12  # more tell a run's spread hardly better


@dataclass(frozen=True)
class Run:
    """One recorded run's figures.

    Attributes:
        fingerprint: Of the machine.
        commit: Of the version.
        figures: By name: ratios within the run, and absolute ones (`pipeline.gate.figures`).
    """

    fingerprint: str
    commit: str
    figures: dict[str, RunFigure]


@dataclass(frozen=True)
class Reference:
    """What a version of the grid gave, once exactly and at least once timed.

    Attributes:
        arms: The cells as the first recorded run had them.
        machine: Facts of the machine and the code of that run (`pipeline.machine.provenance.here`).
        runs: Each recorded run.
    """

    arms: tuple[Arm, ...]
    machine: dict[str, str]
    runs: tuple[Run, ...]

    @property
    def threads(self) -> str:
        """CPU threads that its cells ran on; "" for an engine that has none."""
        found = {a.settings.get("threads", "") for a in self.arms}
        return found.pop() if len(found) == 1 else ""

    def with_run(self, later: Reference) -> Reference:
        """Return this reference with the runs of a later one of equal answers."""
        return replace(self, runs=(*self.runs, *later.runs)[-MOST_RUNS:])

    def differences(self, later: Reference) -> list[str]:
        """Return why the runs of two recordings do not belong together; none if they do."""
        if machine_class(self.machine) != machine_class(later.machine):
            return ["machine class"]
        found = differences(later.arms, self.arms, recorded=True)
        if not found:
            for ours, theirs in zip(later.arms, self.arms, strict=True):
                found += map(str, exact_findings(ours, theirs, str))
        return found


def new_reference(arms: Sequence[Arm], machine: dict[str, str]) -> Reference:
    """Return the reference of one run."""
    run = Run(machine["fingerprint"], machine.get("commit", ""), figures(arms))
    return Reference(tuple(arms), machine, (run,))


def figures(arms: Sequence[Arm]) -> dict[str, RunFigure]:
    """Return a run's figures; those with a prompt that was not repeated are left out."""
    named = [*ratios(arms), *absolutes(arms)]
    return {
        name: run_figure(rows)
        for name, rows in named
        if rows and min(len(repeated) for repeated in rows) > 1
    }


def grid_digest(jobs: Sequence[Job]) -> str:
    """Return a short name of a grid: what it was asked for by, on any machine."""
    return hashlib.sha256(json.dumps(sorted(sorted(job) for job in jobs)).encode()).hexdigest()[:12]


def answers_digest(arms: Sequence[Arm]) -> str:
    """Return a hash of all that must be equal exactly: tokens, and steps with what they kept."""
    answers = [
        [a.label, prompt, answer.tokens, answer.committed]
        for a in arms
        for prompt, answer in sorted(a.answers.items())
    ]
    return hashlib.sha256(json.dumps(answers).encode()).hexdigest()[:12]


def dump(reference: Reference) -> str:
    """Write a reference as JSON; a prompt's answer and a run stand on a line each."""
    arms = [plain(found) for found in reference.arms]
    data = {
        "format": FORMAT,
        "machine": reference.machine,
        "cells": arms,
        "runs": [asdict(run) for run in reference.runs],
    }
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("},", "},\n") + "\n"


def load(text: str, name: str) -> Reference:
    """Read a reference.

    Raises:
        ValueError: It is none, or one of another format.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}, this version reads {FORMAT}")
        return Reference(
            arms=tuple(from_plain(each) for each in data["cells"]),
            machine=data["machine"],
            runs=tuple(_run(each) for each in data["runs"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"reference={name}: not a recorded reference ({one_line(error)});"
            " record one with gate.record=true record_to=FILE"
        ) from None


def _run(data: dict[str, Any]) -> Run:
    found = {name: RunFigure(**each) for name, each in data["figures"].items()}
    return Run(data["fingerprint"], data["commit"], found)


def read(path: str) -> Reference:
    """Read a reference from a file.

    Raises:
        ValueError: There is none.
    """
    try:
        return load(Path(path).expanduser().read_text(), path)
    except OSError as error:
        raise ValueError(
            f"reference={path}: {error.strerror}; record one with gate.record=true record_to={path}"
        ) from None


def write(reference: Reference, path: str) -> None:
    """Write a reference to a file, whole or not at all."""
    write_atomically(Path(path).expanduser().absolute(), dump(reference))
