"""Serve one version's cells from a process of its own, which `versions.version` starts.

    python -P child.py FOLDER

Reads a request a line, JSON, from its input and answers each with a line; ends with its input. An
error ends it too: the traceback is the end of its log. Nothing of the gate is imported, since the
version may be an older one. It uses the version's `conf`, its `build_cells`, the `cell`, `prompts`
and `record` of the cells that were built, `Engine.start` and the `Session`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

# The module of `build_cells`, newest layout first.
BUILD = ("pipeline.sweep.build", "pipeline.build")  # the second until 2026-12-01


class Cells:
    """The cells of this version: built together, started and asked one by one."""

    def __init__(self, folder: Path) -> None:
        """Import this version's code from its folder.

        Raises:
            ImportError: It is not there, it lacks a package, or another version was imported.
        """
        build = _import_first(BUILD)
        source = Path(build.__file__ or "").resolve()
        if not source.is_relative_to(folder.resolve()):
            raise ImportError(f"pipeline was imported from {source}, not from {folder}")
        self._build_cells = build.build_cells
        self._planned: list[Any] = []
        self._sessions: dict[int, Any] = {}

    def build(self, jobs: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Build the cell of each job; return its record and its prompts' ids.

        Raises:
            ValueError: A cell cannot be built.
        """
        from hydra import compose, initialize_config_module

        with initialize_config_module("conf", version_base="1.3"):
            configs = [compose("config", overrides=list(job)) for job in jobs]
        self._planned = self._build_cells(configs, jobs, "refuse")
        return [
            {"record": asdict(plan.record), "prompts": [prompt.id for prompt in plan.prompts]}
            for plan in self._planned
        ]

    def start(self, cell: int) -> dict[str, str]:
        """Load a cell and warm it up; return the settings as its engine resolved them."""
        plan = self._planned[cell]
        session = plan.cell.engine.start(plan.cell)
        session.warm_up(list(plan.prompts))
        self._sessions[cell] = session
        return dict(session.settings())

    def answer(self, cell: int, prompt: int, repetition: int) -> dict[str, Any]:
        """Let a cell answer a prompt; return the response's fields."""
        asked = self._planned[cell].prompts[prompt]
        return asdict(self._sessions[cell].generate(asked, repetition))

    def proof(self, cell: int) -> dict[str, Any]:
        """Return the counts of a cell's engine, and how they contradict the cell's label."""
        proof = self._sessions[cell].proof()
        contradiction = proof.problem or self._planned[cell].cell.verify.contradiction(proof) or ""
        return {"proof": asdict(proof), "contradiction": contradiction}


def _import_first(names: Sequence[str]) -> ModuleType:
    """Import the first of some modules that is there.

    Raises:
        ModuleNotFoundError: None is, or one is and lacks a package.
    """
    *earlier, last = names
    for name in earlier:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # it is there, and a package that it needs is not
    return importlib.import_module(last)


def serve(cells: Cells, requests: Any, answers: Any) -> None:
    """Answer each request, a method of `Cells` under `do` with its arguments, until none comes."""
    for line in requests:
        request: Mapping[str, Any] = json.loads(line)
        arguments = {name: value for name, value in request.items() if name != "do"}
        answers.write(json.dumps(getattr(cells, request["do"])(**arguments)) + "\n")
        answers.flush()


def main() -> None:
    """Serve on standard output; whatever else prints there goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(Cells(Path(sys.argv[1])), sys.stdin, answers)


if __name__ == "__main__":
    main()
