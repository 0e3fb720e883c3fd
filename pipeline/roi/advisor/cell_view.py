"""What a rule may look at: one cell, its figures where it has any, and the cells beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.cell.cell import Abilities
from pipeline.judge.comparison import Comparison, interleaved, not_interleaved
from pipeline.measure import Levers, Measurement
from pipeline.record.record import CellRecord

DRIFT = 1.1  # what a machine may change between turns without any cell being to blame


@dataclass(frozen=True)
class Seen:
    """One cell as a rule sees it.

    Attributes:
        record: The cell: settings, proof and responses.
        measurement: Its figures; None for a void, failed or skipped cell.
        others: The other cells of the comparison with theirs.
        best: The best baseline, or None.
    """

    record: CellRecord
    measurement: Measurement | None
    others: tuple[tuple[CellRecord, Measurement | None], ...]
    best: CellRecord | None

    @property
    def levers(self) -> Levers | None:
        """What the cell's speed-up is made of, over all classes."""
        versus = self.measurement.overall.versus if self.measurement else None
        return versus.levers if versus else None

    @property
    def shares_memory(self) -> bool:
        """Whether the ranks of the cell are processes on a CPU that fuse over shared memory."""
        proof = self.record.proof
        return proof is not None and (proof.capture, proof.allreduce) == ("native_plan", "fused")

    @property
    def abilities(self) -> Abilities:
        """What the drafter and the verify backend say of themselves."""
        return self.record.abilities

    @property
    def is_held(self) -> bool:
        """Whether the accept length is pretended, so that what was accepted says nothing."""
        return self.record.held_accept_length > 0

    @property
    def is_tree(self) -> bool:
        """Whether drafts had branches: more tokens than their depth."""
        responses = [r for repetition in self.record.repetitions for r in repetition]
        return sum(sum(r.proposed) for r in responses) > sum(sum(r.depth) for r in responses)

    @property
    def cheapest(self) -> bool:
        """Whether no other backend verifies this drafter's drafts in less time."""
        own = self.measurement.overall.verify_ms if self.measurement else 0.0
        return all(
            own <= self.least(r) * self.comparable_verify_ms(r, m) for r, m in self.same_drafter()
        )

    def comparable_verify_ms(self, record: CellRecord, measurement: Measurement) -> float:
        """Return what another cell's verify step takes in this cell's turns, in ms.

        Where the two did not take turns it is scaled by the best baseline, which ran beside both.
        """
        figures = measurement.overall
        if self.measurement is None or interleaved(record, self.record) or not figures.versus:
            return figures.verify_ms
        return figures.rescaled_to(self.measurement.overall.plain_ms).verify_ms

    def linked(self, record: CellRecord) -> bool:
        """Whether another cell's times and this one's were taken beside each other.

        They took turns, or the best baseline ran in the turns of both. What was not noted counts as
        turns that were shared.
        """
        if interleaved(record, self.record) or not (
            record.group_starts and self.record.group_starts
        ):
            return True
        return self.best is not None and not any(
            not_interleaved(r, self.best) for r in (record, self.record)
        )

    def least(self, record: CellRecord) -> float:
        """Return the ratio of two times from which on they differ by more than their turns do."""
        return 1.0 if self.linked(record) else DRIFT

    def interleaving(self, record: CellRecord) -> str:
        """Say how another cell's time came into this one's turns, "" where it was taken there."""
        if not self.linked(record):
            return ", measured at different times"
        scaled = self.record.control or record.control
        if scaled and not interleaved(record, self.record):
            return ", scaled by the baseline beside both"
        return ""

    def same_drafter(self) -> Iterator[tuple[CellRecord, Measurement]]:
        """Yield the measured cells with this drafter at this width and another backend."""
        own = self.record
        for record, measurement in self.others:
            same = (record.params["drafter"], record.width) == (own.params["drafter"], own.width)
            if measurement and same and record.params["verify"] != own.params["verify"]:
                yield record, measurement


class Rule(NamedTuple):
    """One known fault.

    Attributes:
        name: Short name.
        source: Where the fault is public.
        finding: Says what was seen and what to do, or "" where the fault is not there.
    """

    name: str
    source: str
    finding: Callable[[Seen], str]


class Advice(NamedTuple):
    """One rule that applies.

    Attributes:
        cell_id: The cell.
        rule: The rule's name.
        text: What was seen and what to do.
        source: Where the fault is public.
    """

    cell_id: str
    rule: str
    text: str
    source: str


def seen(comparison: Comparison) -> Iterator[Seen]:
    """Yield a view of every cell of a comparison, with the other cells that rules compare it to."""
    pairs = [(r, comparison.measurements.get(r.cell_id)) for r in comparison.records]
    for record, measurement in pairs:
        others = tuple(pair for pair in pairs if pair[0].cell_id != record.cell_id)
        yield Seen(record, measurement, others, comparison.best)
