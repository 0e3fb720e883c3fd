"""Keep references and runs of the gate in MLflow, and test the trend over those runs.

References are found by grid and machine class. Everything goes through `pipeline.track.Tracker`,
which owns MLflow.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.gate.decision.over_runs import FEWEST_RUNS, trend
from pipeline.gate.outcome import GateVerdict, Outcome
from pipeline.gate.reference import MOST_RUNS, Reference, answers_digest, dump, load
from pipeline.machine.provenance import class_digest, known_commit
from pipeline.track import Tracker, answering

REFERENCE, GATE = "gate_reference", "gate"  # tag `kind`
FILE = "reference.json"


def save_reference(tracker: Tracker, reference: Reference, grid: str, sweep_id: str) -> str:
    """Log a recorded run as a reference; return the MLflow run's id."""
    tags = {
        "kind": REFERENCE,
        "grid": grid,
        "machine_class": class_digest(reference.machine),
        "answers": answers_digest(reference.arms),
        "sweep_id": sweep_id,
        "commit": known_commit(reference.machine),
    }
    with answering():
        run = tracker.client.create_run(tracker.experiment_id, tags=tags, run_name="gate reference")
        tracker.client.log_text(run.info.run_id, dump(reference), FILE)
        tracker.client.set_terminated(run.info.run_id)
        return str(run.info.run_id)


def find_reference(tracker: Tracker, grid: str, machine: Mapping[str, str]) -> Reference:
    """Return the newest reference of a grid and machine class, with the runs that agree with it.

    Raises:
        ValueError: There is none, or it is damaged.
    """
    with answering():
        runs = _runs(tracker, REFERENCE, grid, machine, MOST_RUNS)
        same = [r for r in runs if r.data.tags["answers"] == runs[0].data.tags["answers"]]
        references = [_download(tracker, run.info.run_id) for run in same]
    if not references:
        raise ValueError(
            "reference=mlflow: no reference of this grid and machine class; record one with"
            " gate.record=true, or name a file"
        )
    newest = references[0]
    for older in references[1:]:
        if not newest.differences(older):
            newest = newest.with_run(older)
    return newest


def log_outcome(
    tracker: Tracker, outcome: Outcome, grid: str, machine: Mapping[str, str], folder: Path
) -> None:
    """Log a run of the gate: its verdict, its figures and all files in its folder."""
    tags = {
        "kind": GATE,
        "grid": grid,
        "machine_class": class_digest(machine),
        "verdict": outcome.verdict,
        "mode": outcome.mode,
        "candidate": outcome.candidate,
        "reference": outcome.reference,
    }
    values = outcome.figures | {f"slow_down/{t.name}": t.slow_down for t in outcome.timed}
    values["findings"] = float(len(outcome.findings))
    with answering():
        client = tracker.client
        run = client.create_run(
            tracker.experiment_id, tags=tags, run_name=f"gate: {outcome.verdict}"
        )
        for name, value in values.items():
            client.log_metric(run.info.run_id, key(name), value)
        client.log_artifacts(run.info.run_id, str(folder))
        client.set_terminated(run.info.run_id)


def drifts(
    tracker: Tracker, outcome: Outcome, grid: str, machine: Mapping[str, str], runs: int
) -> list[str]:
    """Return a line for each figure that grew steadily over the last runs without a regression.

    Args:
        tracker: The store of the earlier runs.
        outcome: This run.
        grid: The digest that names the grid.
        machine: This machine's facts.
        runs: The number of runs to test, this one included.
    """
    steady = f" and tags.verdict != '{GateVerdict.REGRESSION}'"
    with answering():
        past = _runs(tracker, GATE, grid, machine, max(runs - 1, 1), steady)[::-1]
    lines = []
    for name, value in outcome.figures.items():
        series = [r.data.metrics[key(name)] for r in past if key(name) in r.data.metrics]
        if runs and len(series) + 1 >= FEWEST_RUNS:
            promise = outcome.promise
            drift = trend([*series, value], promise.alpha / len(outcome.figures), promise.tolerance)
            if drift.drifts:
                lines.append(
                    f"slow drift over {drift.runs} runs: {name} grew {drift.change:+.1%}"
                    f" (p {drift.p:.1g})"
                )
    return lines


def key(name: str) -> str:
    """Replace the characters of a name that MLflow refuses."""
    return re.sub(r"[^\w\-. /]", "_", name)


def _runs(
    tracker: Tracker, kind: str, grid: str, machine: Mapping[str, str], most: int, also: str = ""
) -> Sequence[Any]:
    """Return MLflow's runs of a kind, of a grid, on machines of one class, newest first."""
    same = f"tags.grid = '{grid}' and tags.machine_class = '{class_digest(machine)}'"
    query, order = f"tags.kind = '{kind}' and {same}{also}", ["start_time DESC"]
    client = tracker.client
    return list(
        client.search_runs([tracker.experiment_id], query, max_results=most, order_by=order)
    )


def _download(tracker: Tracker, run_id: str) -> Reference:
    """Download the reference of an MLflow run."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(tracker.client.download_artifacts(run_id, FILE, place))
        return load(path.read_bytes(), f"reference=mlflow, run {run_id}")
