"""Which drafter with which backend pays on a machine that was not measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipeline.roi.scale.cost_model import LAUNCH_US, CostModel
from pipeline.roi.scale.forward_cost import ScaleTarget, Work
from pipeline.roi.scale.machines import Box


class Way(NamedTuple):
    """How a verify step runs on paper.

    Attributes:
        name: What it is called in tables.
        captured: It is replayed from a capture instead of launched kernel by kernel.
        fused: All-reduce, residual add and norm are one kernel.
    """

    name: str
    captured: bool = False
    fused: bool = False


EAGER, CAPTURED = Way("eager"), Way("captured", captured=True)
FUSED = Way("captured and fused", captured=True, fused=True)


class PaperDrafter(NamedTuple):
    """A drafter as two numbers.

    Attributes:
        name: What it is.
        width: Rows of its verify step.
        low: Least accept length.
        high: Most.
        trained: It runs a model; looking text up costs nothing here.
        source: Where the accept length comes from.
    """

    name: str
    width: int
    low: float
    high: float
    trained: bool
    source: str


class Outlook(NamedTuple):
    """One drafter with one way to verify, at one batch and context.

    Attributes:
        drafter: The drafter.
        way: How the verify step runs.
        work: Batch, width and context.
        step_ms: Step time, quick and slow end.
        tok_s: Speed over all requests, slow and quick end.
        speed_up: Against the fastest plain decoding, low and high.
    """

    drafter: PaperDrafter
    way: Way
    work: Work
    step_ms: tuple[float, float]
    tok_s: tuple[float, float]
    speed_up: tuple[float, float]

    @property
    def verdict(self) -> str:
        """Whether the whole range pays, none of it, or it cannot be said on paper."""
        if self.speed_up[0] > 1:
            return "pays"
        return "does not pay" if self.speed_up[1] < 1 else "measure it"


def outlook(
    model: CostModel, target: ScaleTarget, box: Box, drafters: Sequence[PaperDrafter], load: Work
) -> Iterator[Outlook]:
    """Yield every drafter with every way to verify that the machine has, at one batch and context.

    Both ends of an all-reduce's time are carried through drafter and baseline together, for it is
    one machine; the model's own error on steps that it was not fitted to widens each end.
    """
    captured = [CAPTURED, *([FUSED] if box.fused else [])]
    plain = Work(load.batch, 1, load.context)
    for drafter in drafters:
        work = Work(load.batch, drafter.width, load.context)
        for way in (EAGER, *captured):
            ratios, steps = [], []
            for end in (0, 1):
                step = step_of(model, target, box, work, way, end, drafter.trained)
                base = min(step_of(model, target, box, plain, w, end, False) for w in captured)
                ratios.append(base / step)
                steps.append(step)
            off = 1 + model.spread
            slow, quick = max(steps) * off, min(steps) / off
            yield Outlook(
                drafter,
                way,
                work,
                (quick, slow),
                (
                    1000 * load.batch * drafter.low / slow,
                    1000 * load.batch * drafter.high / quick,
                ),
                (drafter.low * min(ratios) / off, drafter.high * max(ratios) * off),
            )


def step_of(
    model: CostModel,
    target: ScaleTarget,
    box: Box,
    work: Work,
    way: Way,
    end: int,
    drafts: bool,
) -> float:
    """Return one step's ms at the quick (0) or slow (1) end of the machine's all-reduces.

    An eager forward takes as long as its launches if those outlast the device's work.
    """
    curve = box.fused[0] if way.fused else box.nccl[end]
    on_device = model.step_ms(target, box, work, curve, drafts)
    if way.captured:
        return on_device
    launches = target.kernels * LAUNCH_US[end] / 1000
    draft = model.coefficients.draft if drafts else 0.0
    return max(on_device, launches + draft)
