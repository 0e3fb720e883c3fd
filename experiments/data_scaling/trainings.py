"""Run the project's own commands one after the other; what is done already is not done again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple


class Overrides(NamedTuple):
    """Settings of the two commands.

    Attributes:
        data: Of `drafters.eagle3.data`; on the command line they begin with `data:`.
        train: Of `drafters.eagle3.train.__main__`.
    """

    data: list[str]
    train: list[str]

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Overrides:
        """Sort a command line's settings."""
        mark = "data:"
        return cls(
            [text.removeprefix(mark) for text in arguments if text.startswith(mark)],
            [text for text in arguments if not text.startswith(mark)],
        )


def data(folder: Path, samples: int, overrides: Sequence[str] = ()) -> Path:
    """Make training data in `folder`, or go on with what is there; return the folder."""
    run("drafters.eagle3.data", [f"folder={folder}", f"samples={samples}", *overrides])
    return folder


def head(folder: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Train a head in `folder` unless it has been; return its card."""
    card = folder / "head" / "training.json"
    if not card.is_file():
        run("drafters.eagle3.train.__main__", [f"folder={folder}", *overrides])
    found: dict[str, Any] = json.loads(card.read_text())
    return found


def run(module: str, arguments: Sequence[str]) -> str:
    """Run a module of the project and return what it wrote to standard output.

    Raises:
        SystemExit: It failed; its own words are on the screen.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    return done.stdout


def row(name: str, card: dict[str, Any], classes: Sequence[str]) -> str:
    """Return a table row: accept length over all and by class, and accept rate by position."""
    metrics = card["metrics"]

    def value(key: str) -> str:
        return f"{metrics[key]:.2f}" if key in metrics else "–"

    low, high = (value(f"held_out/accept_length_{end}") for end in ("low", "high"))
    cells = [f"{value('held_out/accept_length')} ({low}–{high})"]
    cells += [value(f"held_out/accept_length/{name}") for name in classes]
    cells += [value(f"held_out/accept_rate_{position}") for position in (1, 2, 3)]
    return f"| {name} | {' | '.join(cells)} |"


def heading(first: str, classes: Sequence[str]) -> str:
    """Return the table's head for `row`."""
    names = [first, "accept length", *classes, *(f"accept rate {place}" for place in (1, 2, 3))]
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"
