"""The public rows of SpecForge's SpecBundle: targets, benchmarks, drafters, shapes and speeds."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# Two targets of one architecture on one kind of machine share a surface; the others stand alone.
ARCHITECTURE = {
    "Qwen3-30B-A3B-Instruct-2507": "Qwen3-30B-A3B",
    "Qwen3-Coder-30B-A3B-Instruct": "Qwen3-30B-A3B",
}


class Cell(NamedTuple):
    """One published cell; `base` and `tok_s` in tok/s."""

    target: str
    bench: str
    shape: str
    topk: str
    draft: str
    base: float
    tok_s: float
    accept_length: float

    @property
    def speed_up(self) -> float:
        """Against the published baseline of the same benchmark."""
        return self.tok_s / self.base

    @property
    def step_ratio(self) -> float:
        """A speculative step's cost in plain steps: the break-even accept length."""
        return self.accept_length / self.speed_up

    @property
    def void(self) -> bool:
        """A verify step costs at least a plain step, so no speed-up exceeds accept length."""
        return self.speed_up > self.accept_length


def read(path: Path) -> list[Cell]:
    """Read the published cells."""
    with path.open() as file:
        return [
            Cell(
                row["target"],
                row["bench"],
                f"{row['steps']}/{row['topk']}/{row['ndt']}",
                row["topk"],
                row["draft"].replace(" ", "").lower(),  # one name is published in two spellings
                float(row["base"]),
                float(row["tok_s"]),
                float(row["AL"]),
            )
            for row in csv.DictReader(file)
        ]


def pools(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Group the cells that count by architecture."""
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        if not cell.void:
            found[ARCHITECTURE.get(cell.target, cell.target)].append(cell)
    return found
