"""A measurement as flat names and numbers, for tracking."""

from __future__ import annotations

import math
import re

from pipeline.measure.figures import Figures
from pipeline.measure.measurement import Measurement
from pipeline.measure.speed_up import Versus
from pipeline.measure.statistics import Interval


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
