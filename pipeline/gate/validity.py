"""Why a cell of a match or a reference is void: its own counts, its label, its output."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.gate.arm import plain_beside
from pipeline.judge.identities import count_fault, loop_fault
from pipeline.judge.lossless import compare_outputs
from pipeline.record.record import CellRecord


def fault(record: CellRecord, contradiction: str, records: Sequence[CellRecord]) -> str:
    """Say why a cell is void, or "".

    Times are left out: on a busy machine they contradict each other by themselves, and whether
    one is slower is the statistics' to judge.

    Args:
        record: A cell as far as it ran.
        contradiction: How the engine's proof contradicts the cell's label.
        records: All cells of the same version.
    """
    if contradiction or not record.repetitions:
        return contradiction
    counts = count_fault(record) or loop_fault(record)
    return counts or compare_outputs(record, _plain(record, records)).reason or _steady(record)


def _plain(record: CellRecord, records: Sequence[CellRecord]) -> CellRecord | None:
    """Return the plain-decode cell whose output this one must equal; None if it is one itself."""
    if record.is_baseline:
        return None
    plain = [
        r for r in records if r.is_baseline and r.comparison == record.comparison and r.repetitions
    ]
    return plain_beside(record, plain)


def _steady(record: CellRecord) -> str:
    """Say that a cell did not take the same steps in each repetition, or ""."""
    first = {r.prompt_id: r.committed for r in record.repetitions[0]}
    for number, responses in enumerate(record.repetitions):
        for response in responses:
            if response.committed != first.get(response.prompt_id, response.committed):
                return (
                    f"prompt {response.prompt_id} took other steps in repetition {number} than in"
                    " the first: the cell does not repeat itself"
                )
    return ""
