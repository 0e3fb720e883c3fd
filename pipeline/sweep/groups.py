"""Split a sweep into groups of cells that fit in memory together.

Later groups measure the best baseline again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.judge.comparison import compare
from pipeline.record.sweep_folder import SweepFolder
from pipeline.sweep.planned import PlannedCell
from pipeline.sweep.running_cell import BaselineControl, RunningCell
from pipeline.sweep.workers import Launcher


@dataclass(frozen=True)
class Groups:
    """Cuts the cells of a sweep into groups, as many cells as may be loaded and as the GPUs hold.

    A comparison is not cut if it fits whole. Where it must be, plain cells go first, and the
    fastest of them takes turns with each later group again.
    """

    planned: Sequence[PlannedCell]
    folder: SweepFolder
    launcher: Launcher
    num_gpus: int

    def cut(self, running_cells: Sequence[RunningCell]) -> Iterator[list[RunningCell]]:
        """Yield groups; each must have been measured before the next is asked for."""
        group = list[RunningCell]()
        for cells in _comparisons(running_cells):
            more = [*self._controls(cells), *cells]  # its plain cells may have ended before
            if group and not self._fit(group, more):
                yield _together(group)
                group = []
            for running in more:
                if group and not self._fit(group, [running]):
                    yield _together(group)
                    group = list(self._controls(cells))
                group = [*group, running]
        if group:
            yield _together(group)

    def _fit(self, group: Sequence[RunningCell], more: Sequence[RunningCell]) -> bool:
        """Say whether more cells can be loaded with those of a group."""
        plans = [running.plan for running in (*group, *more)]
        gpus = sum(self.launcher.gpus_per_cell or plan.gpus for plan in plans)
        room = len(plans) <= self.launcher.resident and gpus <= self.num_gpus
        return room and all(plan.resident for plan in plans)

    def _controls(self, cells: Sequence[RunningCell]) -> Iterator[RunningCell]:
        """Yield what measures the best plain cell again, if one has ended and there is room.

        Args:
            cells: Cells of one comparison, at least one.
        """
        if not self._fit(cells[:1], cells[:1]):  # a second one of its size has no room
            return
        plans = {
            plan.cell.cell_id: plan
            for plan in self.planned
            if plan.cell.comparison == cells[0].record.comparison
        }
        # With the drafted ones: what loops in any of them does not count for the choice either.
        ended = [record for cell_id in plans if (record := self.folder.record(cell_id))]
        for best in (found.best for found in compare(ended)):
            if best is not None:
                plan = plans[best.cell_id]
                record = replace(plan.record, label=f"{best.label} (again, as control)")
                yield BaselineControl(plan, self.folder.control(best.cell_id), record)


def _comparisons(running_cells: Sequence[RunningCell]) -> list[list[RunningCell]]:
    """Return the cells of each comparison, in the order of first appearance, plain ones first."""
    found: dict[str, list[RunningCell]] = {}
    for running in running_cells:
        found.setdefault(running.record.comparison, []).append(running)
    return [
        sorted(cells, key=lambda running: not running.record.is_baseline)
        for cells in found.values()
    ]


def _together(group: list[RunningCell]) -> list[RunningCell]:
    """Tell each control of a group which cells of its comparison are interleaved with it."""
    for control in group:
        if isinstance(control, BaselineControl):
            shared = control.record.comparison
            control.others = [
                running
                for running in group
                if running is not control and running.record.comparison == shared
            ]
    return group
