"""A sweep's folder: results are here, whole, before they are anywhere else."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.record.record import (
    CellRecord,
    Damaged,
    Loaded,
    load_record,
    load_records,
    parse,
    write_atomically,
)


@dataclass(frozen=True)
class Tracking:
    """Where a sweep is tracked."""

    uri: str
    experiment: str
    runs: str


@dataclass(frozen=True)
class Facts:
    """What `sweep.json` must say; more may be noted in it."""

    cell_ids: tuple[str, ...]
    begun: str
    provenance: dict[str, str]
    settings: dict[str, Any]
    tracking: Tracking | None = None
    ended: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SweepFolder:
    """One sweep on disk: `sweep.json`, `cells/<cell_id>/`, the report and its plots."""

    path: Path

    @property
    def sweep_id(self) -> str:
        """The sweep's identity: its folder's name."""
        return self.path.name

    @property
    def facts(self) -> dict[str, Any]:
        """What `sweep.json` says: `cell_ids` in order, provenance, tracking, seconds.

        Raises:
            Damaged: It is not what was written.
        """
        path = self.path / "sweep.json"
        text, remedy = path.read_bytes(), "put a copy back, or measure again with resume=false"
        facts = parse(Facts, text, path, remedy, extra="ignore")
        if away := [name for name in facts.cell_ids if not re.fullmatch(r"[\w-]+", name)]:
            raise Damaged(path, f"cell_ids: {away[0]!r:.40} is no cell's name", remedy)
        return dict(json.loads(text))

    def note(self, **facts: Any) -> None:
        """Add to `sweep.json`, atomically."""
        text = json.dumps(self.facts | facts, indent=1, ensure_ascii=False)
        write_atomically(self.path / "sweep.json", text)

    def cell(self, cell_id: str) -> Path:
        """Return the folder of a cell."""
        return self.path / "cells" / cell_id

    def control(self, cell_id: str) -> Path:
        """Return the folder for the next time that a plain cell is measured again."""
        number = len(list((self.path / "controls").glob("*")))
        return self.path / "controls" / f"{number:02d}-{cell_id}"

    def record(self, cell_id: str) -> CellRecord | None:
        """Read a cell's record and repetitions; None if it has none yet.

        Raises:
            Damaged: A file of the cell is not what was written.
        """
        folder = self.cell(cell_id)
        return load_record(folder) if (folder / "record.json").exists() else None

    def read(self) -> Loaded:
        """Read every cell that has a record, in the order of the grid, damaged ones apart."""
        folders = map(self.cell, self.facts["cell_ids"])
        return load_records(f for f in folders if (f / "record.json").exists())

    def records(self) -> list[CellRecord]:
        """Read every cell that has a record, in the order of the grid.

        Raises:
            Damaged: A file of a cell, or `sweep.json`, is not what was written.
        """
        found = (self.record(cell_id) for cell_id in self.facts["cell_ids"])
        return [record for record in found if record is not None]

    def forget(self, cell_id: str) -> None:
        """Delete a failed cell's repetitions and log: it is measured again from the start."""
        for path in self.cell(cell_id).glob("*"):
            path.unlink()


def create_sweep(runs: Path, cell_ids: Iterable[str], **facts: Any) -> SweepFolder:
    """Make the folder of a new sweep under `runs/sweeps`."""
    ids = list(cell_ids)
    begun = datetime.now(UTC)
    name = f"{begun:%Y%m%d-%H%M%S-%f}-{_set_hash(ids)}"
    folder = SweepFolder(runs.expanduser().absolute() / "sweeps" / name)
    always = {"cell_ids": ids, "begun": begun.isoformat(timespec="seconds")}
    plain = {**always, "provenance": {}, "settings": {}, **facts}
    write_atomically(folder.path / "sweep.json", json.dumps(plain, indent=1, ensure_ascii=False))
    return folder


def newest_sweep(runs: Path, cell_ids: Iterable[str]) -> SweepFolder | None:
    """Return the latest sweep of exactly these cells, in any order, or None."""
    sweeps = runs.expanduser().absolute() / "sweeps"
    names = sorted(path.name for path in sweeps.glob(f"*-{_set_hash(cell_ids)}"))
    return SweepFolder(sweeps / names[-1]) if names else None


def _set_hash(cell_ids: Iterable[str]) -> str:
    """Hash a set of cells, 8 hex digits."""
    return hashlib.sha256(" ".join(sorted(set(cell_ids))).encode()).hexdigest()[:8]
