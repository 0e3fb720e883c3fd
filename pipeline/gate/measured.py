"""A grid measured once, as any sweep is: the way of a recorded reference, on any engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import DictConfig

from pipeline.gate.arm import Arm, arm
from pipeline.gate.overrides import Job
from pipeline.gate.validity import fault
from pipeline.measure.wording import cell_names
from pipeline.record.record import CellRecord, Status
from pipeline.record.sweep_folder import newest_sweep
from pipeline.sweep.build import build_cells
from pipeline.sweep.launch import run_sweep
from pipeline.sweep.settings import REFUSED, Settings
from pipeline.sweep.sweep import STOPPED


@dataclass(frozen=True)
class Measured:
    """A measured grid.

    Attributes:
        records: The cells as the sweep left them.
        sweep_id: The sweep, on disk and in MLflow.
    """

    records: tuple[CellRecord, ...]
    sweep_id: str

    @property
    def arms(self) -> list[Arm]:
        """The cells that ran."""
        names = cell_names(self.records)
        ran = [r for r in self.records if r.proof is not None and r.repetitions]
        return [
            arm(r, names[r.cell_id], fault(r, r.reason if r.status is Status.VOID else "", ran))
            for r in ran
        ]

    @property
    def failures(self) -> list[str]:
        """Cells that did not run to their end."""
        kept = (Status.OK, Status.VOID)
        return [f"{r.label} {r.status}: {r.reason}" for r in self.records if r.status not in kept]


def measure_grid(
    configs: Sequence[DictConfig], jobs: Sequence[Job], settings: Settings
) -> Measured:
    """Run the cells as a sweep and return what it left.

    Raises:
        ValueError: A cell cannot be built.
        SystemExit: The sweep could not start, or was stopped; it has said why.
    """
    planned = build_cells(configs, jobs, configs[0].on_impossible)
    status = run_sweep(planned, settings, time.perf_counter())
    folder = newest_sweep(settings.runs, [plan.cell.cell_id for plan in planned])
    if status in (REFUSED, STOPPED) or folder is None:
        raise SystemExit(status)
    return Measured(tuple(folder.records()), folder.sweep_id)
