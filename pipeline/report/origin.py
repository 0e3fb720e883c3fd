"""What ran, how long it took, where it comes from and how to repeat it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipeline.record import CellRecord
from pipeline.wording import code, number, percent, sentence, table


def ran(records: Sequence[CellRecord], names: Mapping[str, str]) -> Iterator[str]:
    """Yield what the engine proved to have run, and where the wall time went."""
    yield "## What ran, and for how long"
    if any(r.proof for r in records):
        yield _proofs(records, names)
    for note in drafter_notes(records):
        yield f"**{sentence(note)}.**"
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
    """Write what the engine proved of each cell that came so far."""
    return table(
        ("cell", "capture", "captured steps", "matrix product", "attention", "all-reduce a step"),
        [
            (
                names[r.cell_id],
                p.capture,
                percent(p.graph_share),
                p.linear,
                p.attention,
                f"{p.allreduce} {number(p.allreduces_per_step)}"
                if p.allreduces_per_step
                else "none",
            )
            for r in records
            if (p := r.proof)
        ],
        text=6,
    )


def origin(
    records: Sequence[CellRecord], names: Mapping[str, str], provenance: Mapping[str, str]
) -> Iterator[str]:
    """Yield where the numbers come from, and the command that reproduces each cell."""
    yield "## Where the numbers come from"
    trusting = [
        names[r.cell_id]
        for r in records
        for key, value in r.params.items()
        if key.endswith("trust_remote_code") and value == "True"
    ]
    if trusting:
        yield f"**`trust_remote_code` was on** in {', '.join(trusting)}."
    if provenance:
        yield table(("what", "value"), provenance.items(), text=2)
    settings = dict.fromkeys(tuple(sorted(r.settings.items())) for r in records if r.settings)
    for shared in settings:
        users = [names[r.cell_id] for r in records if tuple(sorted(r.settings.items())) == shared]
        yield f"Engine settings of {', '.join(users)}: {', '.join(f'{k}={v}' for k, v in shared)}."
    yield "### Reproduce a cell"
    commands = (f"# {names[r.cell_id]}\n{r.command}" for r in records if r.command)
    yield code("\n".join(commands) or "# no command was recorded")


def drafter_notes(records: Iterable[CellRecord]) -> list[str]:
    """Return what the drafters of these cells say of themselves, each once."""
    return [n for n in dict.fromkeys(r.params.get("drafter.note", "") for r in records) if n]
