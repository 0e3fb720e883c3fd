"""What a tracked run says beside the figures of `pipeline.measure`: names and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.judge.comparison import Comparison
from pipeline.measure import Measurement, measure, metrics
from pipeline.measure.wording import arm_names
from pipeline.record.record import CellRecord
from pipeline.report.verdict import verdict

BY_REPETITION = ("tok_s", "accept_length", "step_ms")


def status_tags(record: CellRecord) -> dict[str, str]:
    """Return how a cell ended."""
    return {"status": record.status, "reason": record.reason, "stop_rule": record.stop_rule}


def own_metrics(record: CellRecord) -> dict[str, float]:
    """Return the figures that a cell has by itself, before any other cell has ended."""
    if not any(response.committed for each in record.repetitions for response in each):
        return {}
    out = metrics(measure(record, None))
    if running := record.proof.running_requests if record.proof else 0.0:
        out |= {"running_requests": running, "throughput_tok_s": running * out["tok_s"]}
    return out


def repetition_metrics(record: CellRecord) -> Iterator[tuple[int, str, float]]:
    """Yield repetition, name and value of figures of each repetition by itself."""
    for step, responses in enumerate(record.repetitions):
        alone = replace(record, repetitions=(responses,))
        if not any(response.committed for response in responses):
            continue  # every response ended at its first token
        figures = metrics(measure(alone, None))
        for name in BY_REPETITION:
            yield step, f"repetition_{name}", figures[name]


def sweep_summary(comparisons: Sequence[Comparison]) -> tuple[dict[str, str], dict[str, float]]:
    """Return tags and metrics of a whole sweep: best cell, best baseline, break-even, verdict.

    With several comparisons the names after the first end in `/2`, `/3`.
    """
    tags, values, notes = dict[str, str](), dict[str, float](), list[str]()
    for number, comparison in enumerate(comparisons, start=1):
        end = f"/{number}" if number > 1 else ""
        notes += verdict(comparison, arm_names(comparison.records))
        if comparison.best is not None:
            tags[f"best_baseline{end}"] = comparison.best.label
        if not comparison.measurements:
            continue
        best = max(comparison.measurements, key=lambda key: _speed(comparison.measurements[key]))
        tags[f"best_cell{end}"] = next(r.label for r in comparison.records if r.cell_id == best)
        found = metrics(comparison.measurements[best])
        for name in ("tok_s", "accept_length", "speed_up", "break_even", "baseline_tok_s"):
            if name in found:
                values[f"best_{name}{end}"] = found[name]
    return tags | {"mlflow.note.content": "\n\n".join(notes)}, values


def _speed(measurement: Measurement) -> tuple[float, float]:
    """What the best cell is chosen by: its speed-up, and tok/s where none of them has one."""
    figures = measurement.overall
    return figures.speed_up if figures.versus else 0.0, figures.tok_s.value
