"""Which cells were measured at another time than the best baseline, and what they stand beside."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.judge.comparison import Comparison
from pipeline.measure.wording import number


def turns(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say which cells did not take turns with the best baseline as it was first measured, or ""."""
    return " ".join(filter(None, [_apart(comparison, names), _again(comparison, names)]))


def _apart(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Name the cells that are compared with a baseline of another time, or ""."""
    if not comparison.apart or comparison.best is None:
        return ""
    others = set(comparison.measurements) - {comparison.best.cell_id}
    named = ", ".join(names[key] for key in names if key in comparison.apart)
    which = "No cell" if comparison.apart >= others else f"Not all cells ({named} did not)"
    return (
        f"{which} took turns with the best baseline, {names[comparison.best.cell_id]}: had the"
        " machine changed in between, these speed-ups would be off by it."
    )


def _again(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say which cells are compared with the best baseline measured again, and how fast it was."""
    best = comparison.best
    if best is None or best.cell_id not in comparison.measurements:
        return ""
    rates = {
        names[r.cell_id]: m.overall.versus.baseline_tok_s
        for r in comparison.records
        if r.control_id == best.cell_id
        and (m := comparison.measurements.get(r.cell_id))
        and m.overall.versus
    }
    if not rates:
        return ""
    low, high = number(min(rates.values())), number(max(rates.values()))
    first = number(comparison.measurements[best.cell_id].overall.tok_s.value)
    return (
        f"{', '.join(rates)} came later and took turns with {names[best.cell_id]} measured again:"
        f" {low if low == high else f'{low}–{high}'} tok/s then, {first} at first. Their speed-ups"
        " are against it then, and their tok/s are of that time: compare cells by speed-up."
    )
