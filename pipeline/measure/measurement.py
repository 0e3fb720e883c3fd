"""One cell's measurement: its figures over all classes and per class, and how quiet it was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from pipeline.measure.figures import Figures, figures
from pipeline.measure.loops import looping_prompts
from pipeline.measure.speed_up import Versus, versus
from pipeline.measure.totals import PromptResponses, by_prompt
from pipeline.record.record import CellRecord

NOISY_SHARE = 0.1  # on two cores, a fifth of one: two threads then wait for each other


@dataclass(frozen=True)
class Measurement:
    """All figures of one cell.

    Attributes:
        is_baseline: The cell decodes plainly.
        width: Rows of a verify step: draft tokens + 1.
        overall: Over all classes; its intervals draw prompts inside their class.
        classes: By workload class, in the workload's order. A class without a prompt that counts
            is missing.
        excluded: Ids of the cell's prompts that were left out because an arm looped, sorted.
        looping_share: Share of the cell's prompts whose own response ends in a loop.
        others_cpu_median: Share of the machine's CPU time that other processes used, median over
            responses; NaN where it cannot be read.
        others_cpu_max: The largest of these.
    """

    is_baseline: bool
    width: int
    overall: Figures
    classes: dict[str, Figures]
    excluded: tuple[str, ...]
    looping_share: float
    others_cpu_median: float
    others_cpu_max: float

    @property
    def noisy(self) -> bool:
        """Whether others used so much of the CPU, in the median, that times should be retaken."""
        return self.others_cpu_median > NOISY_SHARE


def measure(
    record: CellRecord, baseline: CellRecord | None, exclude: frozenset[str] = frozenset()
) -> Measurement:
    """Compute a cell's figures.

    Args:
        record: A cell with at least one repetition.
        baseline: The best baseline (`pipeline.judge.comparison` picks it), or None: then no
            speed-up is given.
        exclude: Ids of prompts that an arm of the comparison answered with a loop.

    Raises:
        ValueError: No prompt with a verify step is left.
    """
    prompts = by_prompt(record, exclude)
    if not prompts:
        raise ValueError(f"{record.label}: no prompt with a verify step is left to measure")
    plain = by_prompt(baseline, exclude) if baseline else []

    def of(chosen: list[PromptResponses]) -> Figures:
        against: Versus | None = None
        if baseline:
            against = versus(baseline.label, chosen, plain, record.width)
        return figures(chosen, record.width, against)

    categories = dict.fromkeys(p.category for p in prompts)
    responses = [r for repetition in record.repetitions for r in repetition]
    shares = [r.others_cpu for r in responses if r.others_cpu >= 0] or [math.nan]
    ids = {r.prompt_id for r in responses}
    return Measurement(
        is_baseline=record.is_baseline,
        width=record.width,
        overall=of(prompts),
        classes={name: of([p for p in prompts if p.category == name]) for name in categories},
        excluded=tuple(sorted(ids & exclude)),
        looping_share=len(looping_prompts(record)) / len(ids),
        others_cpu_median=median(shares),
        others_cpu_max=max(shares),
    )
