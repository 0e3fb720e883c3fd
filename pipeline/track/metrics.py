"""Flatten a cell's and a sweep's figures into the names and numbers of an MLflow run."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.judge.comparison import Comparison
from pipeline.measure import Measurement, measure
from pipeline.measure.figures import Figures
from pipeline.measure.speed_up import Versus
from pipeline.measure.statistics import Interval
from pipeline.record.record import CellRecord

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


def sweep_summary(
    comparisons: Sequence[Comparison], verdict: Sequence[str]
) -> tuple[dict[str, str], dict[str, float]]:
    """Return tags and metrics of a sweep: best cell, best baseline, break-even, verdict, ends.

    With several comparisons the names after the first end in `/2`, `/3`.

    Args:
        comparisons: The judged cells.
        verdict: The report's first lines; none before there is a report.
    """
    tags, values = dict[str, str](), dict[str, float]()
    for number, comparison in enumerate(comparisons, start=1):
        end = f"/{number}" if number > 1 else ""
        if comparison.best is not None:
            tags[f"best_baseline{end}"] = comparison.best.label
        if not comparison.measurements:
            continue
        best = max(comparison.measurements, key=lambda key: _speed(comparison.measurements[key]))
        tags[f"best_cell{end}"] = next(r.label for r in comparison.records if r.cell_id == best)
        tags[f"best_cell_id{end}"] = best
        found = metrics(comparison.measurements[best])
        for name in ("tok_s", "accept_length", "speed_up", "break_even", "baseline_tok_s"):
            if name in found:
                values[f"best_{name}{end}"] = found[name]
    ends = Counter(str(r.status) for comparison in comparisons for r in comparison.records)
    values |= {f"cells_{status}": float(number) for status, number in ends.items()}
    return tags | {"mlflow.note.content": "\n\n".join(verdict)}, values


def _speed(measurement: Measurement) -> tuple[float, float]:
    """What the best cell is chosen by: its speed-up, and tok/s where none of them has one."""
    figures = measurement.overall
    return figures.speed_up if figures.versus else 0.0, figures.tok_s.value


def metrics(measurement: Measurement) -> dict[str, float]:
    """Return every figure by name; a workload class's end in `/class`, such as `tok_s/copy`.

    `accept_rate_1` is about the first draft token. Figures without a value (a position that no step
    reached, an interval from one prompt) are left out. Characters that trackers refuse in the name
    of a class become `_`.
    """
    flat = _figures(measurement.overall, measurement.is_baseline)
    for name, figures in measurement.classes.items():
        suffix = re.sub(r"[^\w\-. ]", "_", name)
        found = _figures(figures, measurement.is_baseline)
        flat |= {f"{key}/{suffix}": value for key, value in found.items()}
    flat |= {
        "num_prompts_excluded": len(measurement.excluded),
        "looping_share": measurement.looping_share,
        "others_cpu_median": measurement.others_cpu_median,
        "others_cpu_max": measurement.others_cpu_max,
        "noisy": measurement.noisy,
    }
    return {key: float(value) for key, value in flat.items() if not math.isnan(value)}


def _figures(figures: Figures, is_baseline: bool) -> dict[str, float]:
    """Flatten one set of figures."""
    # First in a tracker's lists stands what is logged first.
    flat = _interval("tok_s", figures.tok_s) | {
        name: getattr(figures, name)
        for name in (
            "num_prompts",
            "num_verify_steps",
            "end_to_end_tok_s",
            "time_to_first_token_ms",
            "accept_length_per_request",
            "accept_length_token_weighted",
            "draft_hit_rate",
            "step_ms",
            "draft_ms",
            "host_ms",
        )
    }
    flat["decode_ms" if is_baseline else "verify_ms"] = figures.verify_ms
    flat |= _interval("accept_length", figures.accept_length)
    flat |= {f"accept_rate_{i}": rate for i, rate in enumerate(figures.accept_rate, start=1)}
    flat |= {f"steps_committing_{k}": n for k, n in enumerate(figures.histogram, start=1)}
    return flat | (_versus(figures.versus) if figures.versus else {})


def _versus(versus: Versus) -> dict[str, float]:
    """Flatten the comparison with the best baseline."""
    return {
        **_interval("speed_up", versus.speed_up),
        "baseline_tok_s": versus.baseline_tok_s,
        "break_even": versus.levers.break_even,
        "break_even_floor": versus.levers.break_even_floor,
        "needed_step_ms": versus.levers.needed_step_ms,
        "limit_of_verify": versus.levers.limit_of_verify,
        "limit_of_overhead": versus.levers.limit_of_overhead,
        "limit_of_drafter": versus.levers.limit_of_drafter,
    }


def _interval(name: str, interval: Interval) -> dict[str, float]:
    """Name a figure and the ends of its interval."""
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
