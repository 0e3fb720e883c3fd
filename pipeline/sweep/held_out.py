"""Measure a trained head's accept length as a cell would, on prompts held out from training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from drafters.eagle3.drafter import Eagle3
from pipeline.cell.cell import Cell, Engine, Parallelism, Sampling
from pipeline.measure import measure
from pipeline.sweep.planned import PlannedCell
from pipeline.target.target import Target
from pipeline.track.metrics import metrics
from pipeline.workload.prompts import prompts_digest
from pipeline.workload.sources import Workload
from verify.base import VerifyBackend


@dataclass(frozen=True)
class HeldOut:
    """Measures a head's accept length as a cell would, on prompts held out from training.

    Attributes:
        target: Whose head it is.
        workload: The prompts.
        engine: What runs them.
        verify: How the verify step runs.
        sampling: How answers are sampled.
        num_draft_tokens: Length of the chain.
    """

    target: Target
    workload: Workload
    engine: Engine
    verify: VerifyBackend
    sampling: Sampling
    num_draft_tokens: int

    def __call__(self, folder: Path, cache: Path) -> dict[str, float]:
        """Return a cell's metrics of the head in `folder`, by the names that sweeps log."""
        prompts = list(self.workload.load(self.target, cache))
        cell = Cell(
            target=self.target,
            drafter=Eagle3(
                name="trained",
                target=self.target.name,
                heads={self.target.name: str(folder)},
                num_draft_tokens=self.num_draft_tokens,
            ),
            verify=self.verify,
            engine=self.engine,
            workload=self.workload,
            sampling=self.sampling,
            parallelism=Parallelism(),
            prompts_digest=prompts_digest(prompts),
        )
        cell.engine.check(cell)
        session = cell.engine.start(cell)
        session.warm_up(prompts)
        responses = tuple(session.generate(prompt, 0) for prompt in prompts)
        session.close()
        record = PlannedCell(cell, tuple(prompts), command="").record
        return metrics(measure(replace(record, repetitions=(responses,)), None))
