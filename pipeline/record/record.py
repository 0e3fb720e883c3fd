"""What is kept of a cell: plain data that outlives the engine, on disk first, then in MLflow."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipeline.cell.cell import Abilities
from pipeline.cell.response import Response
from pipeline.record.older import abilities_of, older_deploy
from verify.base import Proof


class Status(StrEnum):
    """How a cell ended."""

    OK = "ok"
    FAILED = "failed"
    VOID = "void"
    SKIPPED = "skipped"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class CellRecord:
    """One cell's raw results and how it ended. Every figure is computed from this, never stored.

    Attributes:
        cell_id: The cell's identity (`Cell.cell_id`).
        comparison: Shared by cells that may be compared (`Cell.comparison`).
        label: Name for people, such as `ngram × extend`.
        params: The cell's settings, flat (`pipeline.cell.cell.flat`): `drafter`, `verify`,
            `engine`, `target`, `workload` and dotted names.
        is_baseline: The cell decodes plainly.
        width: Rows of a verify step: draft tokens + 1.
        greedy: Temperature is 0 and no accept length is held, so outputs must equal the baseline's.
        abilities: What its drafter and verify backend said of themselves.
        status: How the cell ended; `reason` says why when it is not `ok`.
        stop_rule: Why repeating ended: `precise`, or the budget that was spent.
        repetitions: Responses by repetition, each in the order of the prompts.
        settings: What the engine resolved (threads, dtype, versions).
        seconds: Wall time by phase: `start`, `warm_up`, `measure`, `orchestrate`.
        command: The command that reproduces the cell.
        log_tail: The worker's or server's last lines, for a failed cell.
        group_starts: UTC times at which the groups began that the cell was measured in; cells
            that were interleaved share one. Empty where it was not noted.
        control_id: The plain cell that was measured again beside this one, or "".
        control: Its responses, by repetition.
    """

    cell_id: str
    comparison: str
    label: str
    params: dict[str, str]
    is_baseline: bool
    width: int
    greedy: bool
    abilities: Abilities = field(default_factory=Abilities)
    status: Status = Status.UNFINISHED
    reason: str = ""
    stop_rule: str = ""
    proof: Proof | None = None
    repetitions: tuple[tuple[Response, ...], ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    command: str = ""
    log_tail: str = ""
    group_starts: tuple[str, ...] = ()
    control_id: str = ""
    control: tuple[tuple[Response, ...], ...] = ()

    @property
    def batch(self) -> int:
        """Requests in flight while it was measured."""
        return int(self.params.get("parallelism.batch", "1"))

    @property
    def held_accept_length(self) -> float:
        """Accept length that the engine pretended; 0 is the real one."""
        return float(self.params.get("sampling.held_accept_length", 0))

    @property
    def dtype(self) -> str:
        """Type that the engine computed in, as it resolved it; "" if it did not say."""
        return self.settings.get("dtype", "")

    @property
    def deploy(self) -> str:
        """The server command that serves the cell, or a comment that says why there is none."""
        return self.settings.get("deploy") or older_deploy(self.params, self.settings, self.width)

    def ended(self, status: Status, reason: str = "") -> CellRecord:
        """Return this record with its end."""
        return replace(self, status=status, reason=reason)


def save_record(record: CellRecord, folder: Path) -> None:
    """Write all but the responses to `folder/record.json`, atomically."""
    plain = asdict(replace(record, repetitions=(), control=()))
    del plain["repetitions"], plain["control"]
    write_atomically(folder / "record.json", json.dumps(plain, indent=1, ensure_ascii=False))


def save_repetition(
    responses: tuple[Response, ...], number: int, folder: Path, kind: str = "repetition"
) -> None:
    """Write one repetition to `folder/<kind>_NNN.jsonl`, atomically, one response a line.

    `kind` is `repetition` for the cell's own, `control` for those of the plain cell beside it.
    """
    lines = [json.dumps(asdict(r), ensure_ascii=False) for r in responses]
    write_atomically(folder / f"{kind}_{number:03d}.jsonl", "\n".join(lines) + "\n")


def load_record(folder: Path) -> CellRecord:
    """Read a cell's folder back, with the repetitions that were finished."""
    plain = json.loads((folder / "record.json").read_text())
    proof = plain.pop("proof")
    plain["abilities"] = abilities_of(plain)
    starts = plain.pop("turns", ())  # its name until 2026-12-01
    starts = plain.pop("group_starts", starts)
    return CellRecord(
        **plain | {"status": Status(plain["status"]), "group_starts": tuple(starts)},
        proof=Proof(**proof) if proof else None,
        repetitions=tuple(load_repetition(p) for p in sorted(folder.glob("repetition_*.jsonl"))),
        control=tuple(load_repetition(p) for p in sorted(folder.glob("control_*.jsonl"))),
    )


def load_repetition(path: Path) -> tuple[Response, ...]:
    """Read one repetition's responses."""
    return tuple(_response(json.loads(line)) for line in path.read_text().splitlines())


def _response(plain: dict[str, Any]) -> Response:
    """Build a response from JSON, where tuples have become lists."""
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    return Response(**fields)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader or a crash sees the old one or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
