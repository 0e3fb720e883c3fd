"""Which cells are loaded together and take turns, and what stands beside those that come later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.judge.comparison import compare
from pipeline.record.sweep_folder import SweepFolder
from pipeline.sweep.planned import Planned
from pipeline.sweep.running_cell import Control, Lane
from pipeline.sweep.workers import Launcher


@dataclass(frozen=True)
class Groups:
    """Cuts the cells of a sweep into groups, as many cells as may be loaded and as the GPUs hold.

    A comparison is not cut if it fits whole. Where it must be, plain cells go first, and the
    fastest of them takes turns with each later group again.
    """

    planned: Sequence[Planned]
    folder: SweepFolder
    launcher: Launcher
    num_gpus: int

    def cut(self, lanes: Sequence[Lane]) -> Iterator[list[Lane]]:
        """Yield groups; each must have been measured before the next is asked for."""
        group = list[Lane]()
        for cells in _comparisons(lanes):
            more = [*self._controls(cells), *cells]  # its plain cells may have ended before
            if group and not self._fit(group, more):
                yield _together(group)
                group = []
            for lane in more:
                if group and not self._fit(group, [lane]):
                    yield _together(group)
                    group = list(self._controls(cells))
                group = [*group, lane]
        if group:
            yield _together(group)

    def _fit(self, group: Sequence[Lane], more: Sequence[Lane]) -> bool:
        """Say whether cells can be loaded beside others."""
        plans = [lane.plan for lane in (*group, *more)]
        gpus = sum(self.launcher.gpus_per_cell or plan.gpus for plan in plans)
        room = len(plans) <= self.launcher.resident and gpus <= self.num_gpus
        return room and all(plan.resident for plan in plans)

    def _controls(self, cells: Sequence[Lane]) -> Iterator[Lane]:
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
                yield Control(plan, self.folder.control(best.cell_id), record)


def _comparisons(lanes: Sequence[Lane]) -> list[list[Lane]]:
    """Return the cells of each comparison, in the order of first appearance, plain ones first."""
    found: dict[str, list[Lane]] = {}
    for lane in lanes:
        found.setdefault(lane.record.comparison, []).append(lane)
    return [sorted(cells, key=lambda lane: not lane.record.is_baseline) for cells in found.values()]


def _together(group: list[Lane]) -> list[Lane]:
    """Tell the controls of a group which cells they stand beside."""
    for control in group:
        if isinstance(control, Control):
            shared = control.record.comparison
            control.others = [
                lane for lane in group if lane is not control and lane.record.comparison == shared
            ]
    return group
