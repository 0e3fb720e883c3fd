"""Say what weakens a verdict: pretended acceptance, missing cells, noise, cells not interleaved."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.judge.comparison import Comparison
from pipeline.measure.statistics import noise, scatter
from pipeline.measure.wording import number

NAMED = 3  # cells without a result that are named in the first line
SCATTER = 0.1  # share of tok/s that repetitions leave unknown, from which on a reader must know


def caveats(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say what a reader must know first: what is pretended, missing, noisy or unproven."""
    noisy = [names[key] for key, m in comparison.measurements.items() if m.noisy]
    unproven = [names[key] for key, found in comparison.lossless.items() if found.unproven]
    text = _held(comparison) + _missing(comparison, names) + _scatter(comparison, names)
    if noisy:
        text += f" Measured on a busy machine, so measure again: {', '.join(noisy)}."
    if unproven:
        text += f" Output not proven to be the target's own: {', '.join(unproven)}."
    return text


def _held(comparison: Comparison) -> str:
    """Say that accept length was pretended, in all cells alike."""
    held = comparison.records[0].held_accept_length
    if not held:
        return ""
    return f" Accept length was held at {held:g}: times are real, texts and acceptance are not."


def _missing(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say how many cells gave no result, for the best may be among them; few are named."""
    without = [r for r in comparison.records if r.cell_id not in comparison.measurements]
    if not without:
        return ""
    text = f" No result from {len(without)} of {len(comparison.records)} cells"
    if len(without) <= NAMED:
        text += f": {', '.join(f'{names[r.cell_id]} ({r.status.value})' for r in without)}"
    return f"{text}."


def _scatter(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Name the cell whose repetitions scatter most, if they do so much that a reader must know."""
    repeated = {
        r.cell_id: r.repetitions
        for r in comparison.records
        if r.cell_id in comparison.measurements and len(r.repetitions) > 1
    }
    most = max(repeated, key=lambda key: scatter(repeated[key]), default="")
    if not most or scatter(repeated[most]) < SCATTER:
        return ""
    return (
        f" Repetitions scatter, most those of {names[most]} ({noise(repeated[most])} in tok/s): do"
        " not trust smaller differences."
    )


def interleaving(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say which cells did not take turns with the best baseline as it was first measured, or ""."""
    return " ".join(filter(None, [_not_interleaved(comparison, names), _again(comparison, names)]))


def _not_interleaved(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Name the cells that are compared with a baseline of another time, or ""."""
    if not comparison.not_interleaved or comparison.best is None:
        return ""
    others = set(comparison.measurements) - {comparison.best.cell_id}
    named = ", ".join(names[key] for key in names if key in comparison.not_interleaved)
    which = (
        "No cell" if comparison.not_interleaved >= others else f"Not all cells ({named} did not)"
    )
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
