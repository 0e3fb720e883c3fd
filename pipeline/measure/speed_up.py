"""A cell against the best baseline, on the same prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.measure.levers import Levers
from pipeline.measure.statistics import Interval, bootstrap
from pipeline.measure.totals import (
    PromptResponses,
    decode_s,
    num_committed,
    num_steps,
    ratio,
    total,
)


@dataclass(frozen=True)
class Versus:
    """A cell against plain decoding: the fastest `none` cell of the same comparison.

    Attributes:
        baseline: The best baseline's label.
        baseline_tok_s: Its decode tok/s.
        speed_up: `tok_s / baseline_tok_s`; its interval draws the same prompts in both cells.
        levers: What the speed-up is made of; break-even is here.
    """

    baseline: str
    baseline_tok_s: float
    speed_up: Interval
    levers: Levers


def versus(
    label: str,
    cell: Sequence[PromptResponses],
    baseline: Sequence[PromptResponses],
    width: int,
) -> Versus | None:
    """Compare on the prompts that both cells answered with a verify step; None if there is none."""
    plain_by_id = {p.id: p for p in baseline}
    cell = [p for p in cell if p.id in plain_by_id]
    if not cell:
        return None
    plain = [plain_by_id[p.id] for p in cell]
    speed, plain_speed = (ratio(side, num_committed, decode_s) for side in (cell, plain))
    plain_s, steps = total(plain, decode_s), total(cell, num_steps)
    return Versus(
        baseline=label,
        baseline_tok_s=total(plain, num_committed) / plain_s,
        speed_up=bootstrap(lambda w: speed(w) / plain_speed(w), [p.category for p in cell]),
        levers=Levers(
            accept_length=total(cell, num_committed) / steps,
            width=width,
            step_ms=total(cell, lambda r: sum(r.step_ms)) / steps,
            verify_ms=total(cell, lambda r: sum(r.verify_ms)) / steps,
            ms_per_token=1000 * plain_s / total(plain, num_committed),
            decode_ms=total(plain, lambda r: sum(r.verify_ms)) / total(plain, num_steps),
        ),
    )
