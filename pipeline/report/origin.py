"""What ran, how long it took, where it comes from and how to repeat it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipeline.measure.wording import code, grouped, number, percent, sentence, table
from pipeline.record.record import CellRecord

SHORT = ("commit", "dirty", "read from", "cpu", "cores", "gpus")
# What has a place of its own: below each other as commands, or as a table.
LONG = ("deploy", "server_command", "breakdown")
FOLD = " \\\n  "  # how a long command is broken


def origin(
    records: Sequence[CellRecord], names: Mapping[str, str], provenance: Mapping[str, str]
) -> Iterator[str]:
    """Yield the little that a reader needs: what ran as the engine proved it, and on what."""
    yield "## What ran"
    proven = any(r.proof for r in records)
    yield _proofs(records, names) if proven else "Nothing: no cell came so far."
    trusting = [
        names[r.cell_id]
        for r in records
        for key, value in r.params.items()
        if key.endswith("trust_remote_code") and value == "True"
    ]
    if trusting:
        yield f"**`trust_remote_code` was on** in {', '.join(trusting)}."
    if notes := drafter_notes(records):
        yield "\n".join(f"- **{sentence(note)}.**" for note in notes)
    told = {key: provenance[key] for key in SHORT if provenance.get(key, "false") != "false"}
    if said := [f"{key} {value}" for key, value in told.items()]:
        yield f"Measured with: {', '.join(said)}."


def took(records: Sequence[CellRecord], names: Mapping[str, str]) -> Iterator[str]:
    """Yield where the wall time went."""
    yield "## How long it took"
    phases = list(dict.fromkeys(phase for r in records for phase in r.seconds))
    if not phases:
        yield "Nothing ran."
        return
    yield table(
        ("cell", *(f"{phase.replace('_', ' ')}, s" for phase in phases)),
        [
            (names[r.cell_id], *(f"{r.seconds[p]:.1f}" if p in r.seconds else "–" for p in phases))
            for r in records
        ],
    )


def _proofs(records: Sequence[CellRecord], names: Mapping[str, str]) -> str:
    """Write what the engine proved, once for all cells that proved the same."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for record in records:
        if p := record.proof:
            sums = f"{p.allreduce} {number(p.allreduces_per_step)}"
            if 0 < p.fused_allreduces_per_step < p.allreduces_per_step:
                each = (p.fused_allreduces_per_step, p.allreduces_per_step)
                sums = f"{p.allreduce} {' of '.join(map(number, each))}"
            proven = (p.capture, percent(p.graph_share), p.linear, p.attention)
            row = (*proven, sums if p.allreduces_per_step else "none")
            alike.setdefault(row, []).append(names[record.cell_id])
    head = (
        "cells",
        "capture",
        "captured steps",
        "matrix product",
        "attention",
        "all-reduces a step",
    )
    return table(head, [(", ".join(cells), *row) for row, cells in alike.items()], text=6)


def settings(
    records: Sequence[CellRecord], names: Mapping[str, str], provenance: Mapping[str, str]
) -> Iterator[str]:
    """Yield every fact and setting: those of all cells once, then what tells cells apart."""
    having = [r for r in records if r.settings]
    values = [{k: v for k, v in r.settings.items() if k not in LONG} for r in having]
    shared = dict(set.intersection(*(set(v.items()) for v in values))) if values else {}
    facts = [*provenance.items(), *((k, v) for k, v in sorted(shared.items()))]
    if facts:
        yield "## Facts and settings"
        yield table(("what", "value"), facts, text=2)
    alike = grouped(
        (", ".join(f"{k}={v}" for k, v in own.items() if k not in shared), names[r.cell_id])
        for r, own in zip(having, values, strict=True)
    )
    if lines := [f"- {', '.join(cells)}: {apart}." for apart, cells in alike.items() if apart]:
        yield "\n".join(lines)


def commands(records: Sequence[CellRecord], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the command that reproduces each cell, and those of its server."""
    yield "## Reproduce a cell"
    found = (f"# {names[r.cell_id]}\n{r.command}" for r in records if r.command)
    yield code("\n".join(found) or "# no command was recorded")
    for key, heading in (("server_command", "Servers as they ran"), ("deploy", "Serve a cell")):
        written = [
            f"# {names[r.cell_id]}\n{r.settings[key].replace(FOLD, ' ')}"
            for r in records
            if r.settings.get(key)
        ]
        if written:
            yield f"## {heading}"
            yield code("\n".join(written))


def drafter_notes(records: Iterable[CellRecord]) -> list[str]:
    """Return how drafters and workloads of these cells describe themselves, each once."""
    said = (r.params.get(f"{part}.note", "") for r in records for part in ("drafter", "workload"))
    return [note for note in dict.fromkeys(said) if note]
