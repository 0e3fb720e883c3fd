"""Which turns of the best baseline a cell is compared with, and which cells had the same turns."""

from __future__ import annotations

from dataclasses import replace

from pipeline.record.record import CellRecord


def beside(record: CellRecord, best: CellRecord) -> CellRecord:
    """Return the best baseline as it was measured in a cell's own turns, if it was, else as it is.

    A cell that was interrupted may have turns with the baseline itself and with its control.
    """
    control = record.control if record.control_id == best.cell_id else ()
    own = best.repetitions if not control or in_turns(record, best) else ()
    return replace(best, repetitions=(*own, *control))


def apart(record: CellRecord, best: CellRecord) -> bool:
    """Say whether a cell is known to be compared with a baseline of another time."""
    noted = bool(record.turns and best.turns)
    return noted and not in_turns(record, best) and record.control_id != best.cell_id


def in_turns(record: CellRecord, other: CellRecord) -> bool:
    """Say whether two cells took turns."""
    return not set(record.turns).isdisjoint(other.turns)
