"""A cell that is ready to be measured, and what its engine asks of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.cell.cell import Cell, DescribesStart, NeedsGpus, StaysLoaded, flat
from pipeline.record.record import CellRecord
from pipeline.workload.prompts import Prompt, workload_note

if TYPE_CHECKING:
    from pipeline.sweep.workers import Launcher


@dataclass(frozen=True)
class PlannedCell:
    """A cell to measure.

    Attributes:
        command: The command that reproduces it.
        impossible: Why the engine cannot run it; "" if it can.
    """

    cell: Cell
    prompts: tuple[Prompt, ...]
    command: str
    impossible: str = ""

    @property
    def gpus(self) -> int:
        """GPUs that the cell's engine asks for."""
        engine = self.cell.engine
        return engine.num_gpus(self.cell) if isinstance(engine, NeedsGpus) else 0

    @property
    def resident(self) -> bool:
        """Whether the engine may stay loaded while other cells are measured; most may."""
        engine = self.cell.engine
        return engine.resident if isinstance(engine, StaysLoaded) else True

    @property
    def prompts_per_turn(self) -> int:
        """Prompts that the cell answers before another one has its turn."""
        return 1 if self.resident else len(self.prompts)

    @property
    def num_turns(self) -> int:
        """Turns of one repetition."""
        return len(self.prompts) // self.prompts_per_turn

    @property
    def _note(self) -> dict[str, str]:
        """What the prompts say of themselves, beside the settings."""
        note = workload_note(self.prompts)
        return {"workload.note": note} if note else {}

    @property
    def record(self) -> CellRecord:
        """The cell's record before anything was measured."""
        cell = self.cell
        return CellRecord(
            cell_id=cell.cell_id,
            comparison=cell.comparison,
            label=cell.label,
            params=flat(cell) | self._note,
            is_baseline=cell.is_baseline,
            width=cell.drafter.num_draft_tokens + 1,
            greedy=cell.sampling.temperature == 0 and not cell.sampling.held_accept_length,
            abilities=cell.abilities,
            command=self.command,
        )


def check_gpus(planned: Sequence[PlannedCell], launcher: Launcher, num_gpus: int) -> None:
    """Refuse cells that would wait forever for GPUs.

    Args:
        planned: Cells, of which the impossible ones need nothing.
        launcher: Where they would run.
        num_gpus: GPUs there.

    Raises:
        ValueError: A cell needs more.
    """
    for plan in planned:
        need = launcher.gpus_per_cell or plan.gpus
        if need <= num_gpus or plan.impossible:
            continue
        needs = f"{plan.cell.label} needs {need} GPU{'s' * (need > 1)}"
        if num_gpus:
            raise ValueError(
                f"{needs} and launcher.address={launcher.address} has {num_gpus}; lower"
                " parallelism.tp or launcher.gpus_per_cell"
            )
        raise ValueError(
            f"{needs} and none is visible at launcher.address={launcher.address}; run it on the GPU"
            f" box (launcher=cluster launcher.address=HOST:PORT), or {_without_gpu(plan)}"
        )


def _without_gpu(plan: PlannedCell) -> str:
    """Say what a cell can do on a machine without a GPU."""
    if not plan.gpus:
        return "set launcher.gpus_per_cell=0"
    if isinstance(plan.cell.engine, DescribesStart):
        return "print what it would start with dry_run=true, or use engine=torch"
    return "use engine.device=cpu"
