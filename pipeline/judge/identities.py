"""What must hold of any cell; where it does not, the figures are wrong and the cell is void."""

from __future__ import annotations

from pipeline.cell.response import Response
from pipeline.measure import Measurement, measure
from pipeline.measure.loops import looping_prompts
from pipeline.record.record import CellRecord

IDENTITY_TOLERANCE = 0.03  # tok/s from the request's clock against the steps' own clocks
SPEED_UP_TOLERANCE = 0.02
MOST_LOOPING = 0.5


def own_fault(record: CellRecord) -> str:
    """Say what is wrong with a cell by itself, or ""."""
    return count_fault(record) or _time_fault(record) or loop_fault(record)


def count_fault(record: CellRecord) -> str:
    """Say which counts of a cell contradict each other, or ""; times are not looked at."""
    responses = [r for repetition in record.repetitions for r in repetition]
    if not any(r.committed for r in responses):
        return "no verify step ran"
    faults = (f"prompt {r.prompt_id}: {f}" for r in responses if (f := _count_fault(r, record)))
    return next(faults, "")


def _count_fault(response: Response, record: CellRecord) -> str:
    """Say which counts of a response contradict each other, or ""."""
    steps = {len(getattr(response, name)) for name in ("committed", "proposed", "depth")}
    steps |= {len(getattr(response, name)) for name in ("step_ms", "verify_ms", "draft_ms")}
    if len(steps) > 1:
        return f"counts and times are of {' and '.join(map(str, sorted(steps)))} verify steps"
    if sum(response.committed) != len(response.tokens) - 1:
        return (
            f"verify steps committed {sum(response.committed)} tokens of the"
            f" {len(response.tokens) - 1} after prefill"
        )
    counts = zip(response.committed, response.depth, response.proposed, strict=True)
    for committed, depth, proposed in counts:
        if not 1 <= committed <= depth + 1 <= proposed + 1 <= record.width:
            return (
                f"a step committed {committed} tokens with {proposed} draft tokens, {depth} deep,"
                f" at width {record.width}"
            )
    return ""


def _time_fault(record: CellRecord) -> str:
    """Say which times and counts of a whole cell contradict each other, or ""."""
    figures = measure(record, None).overall
    steps = figures.num_verify_steps
    if record.proof and record.proof.request_steps < steps:
        return f"the engine proves {record.proof.request_steps} verify steps of {steps}"
    implied = figures.tok_s.value * figures.step_ms / 1000 / figures.accept_length.value
    if abs(implied - 1) > IDENTITY_TOLERANCE:
        return (
            f"tok/s × step time is {implied:.2f} of accept length, must be 1 within 3 %:"
            " time is spent outside the steps or counted twice"
        )
    if figures.host_ms < -IDENTITY_TOLERANCE * figures.step_ms:
        return f"verify and draft time exceed the step's {figures.step_ms:.2f} ms"
    return ""


def loop_fault(record: CellRecord) -> str:
    """Say that most of a cell's own responses loop, or ""."""
    looping = len(looping_prompts(record))
    total = len({r.prompt_id for r in record.repetitions[0]})
    if looping > MOST_LOOPING * total:
        return f"{looping} of {total} responses end in a loop: use other prompts or fewer tokens"
    return ""


def speed_fault(measurement: Measurement) -> str:
    """Say that a speed-up is not possible, or ""."""
    versus, length = measurement.overall.versus, measurement.overall.accept_length.value
    if versus is None or versus.speed_up.value <= length * (1 + SPEED_UP_TOLERANCE):
        return ""
    return (
        f"speed-up {versus.speed_up.value:.2f}x exceeds accept length {length:.2f}:"
        f" {versus.baseline} was slowed while it ran, or plain decode with this verify backend"
        " is missing"
    )
