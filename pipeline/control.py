"""Plain decoding measured again, beside cells that are measured after their baseline.

A grid with more cells than are loaded at once is measured in groups, one after the other. On a
machine that others use, a cell of a later group would be compared with a baseline from a quieter
or a busier hour. So the fastest plain cell takes turns with each later group too, and a speed-up
there is against these turns (`pipeline.beside`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.sweep.cell_process import Repetition
from pipeline.sweep.running_cell import Lane, WorkerFailed
from pipeline.sweep.stop_rule import Measuring


@dataclass
class Control(Lane):
    """A plain cell that has its record already, measured again for the cells beside it.

    It is repeated as long as one of them is. What it measures is kept with each of them, so that a
    cell's record is whole by itself; the plain cell's own record stays as it is.

    Attributes:
        others: The cells that it stands beside.
    """

    others: Sequence[Lane] = ()

    @property
    def runs(self) -> bool:
        """Whether a cell beside it still has to be measured, and it has not failed."""
        return super().runs and any(other.runs for other in self.others)

    @property
    def is_control(self) -> bool:
        """It is."""
        return True

    def enough(self, measuring: Measuring) -> str:
        """Go on: the cells beside it say when it is enough."""
        return ""

    def keep(self, repetition: Repetition) -> None:
        """Give a repetition to the cells that still run.

        Raises:
            WorkerFailed: The engine ran it in another way than its label says.
        """
        proof = repetition.proof
        if problem := proof.problem or self.plan.cell.verify.contradiction(proof):
            raise WorkerFailed(problem)
        for other in self.others:
            if other.runs:
                other.keep_control(self.record.cell_id, repetition.responses)
        kept = (*self.record.repetitions, repetition.responses)
        self.record = replace(self.record, repetitions=kept)
