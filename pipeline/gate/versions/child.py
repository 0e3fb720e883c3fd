"""Run one version's cells; `pipeline.gate.versions.process` starts this on that version.

    python -P child.py FOLDER

Reads a request a line, JSON, from its input and answers each with a line; ends with its input. An
error ends it too: the trace is the end of its log. Nothing of the gate is imported, since the
version may be an older one. Of it are used: the configs in `conf`,
`pipeline.sweep.build.build_cells`, the `cell`, `prompts` and `record` of what that returns,
`Engine.start` and the `Session`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any


class Cells:
    """The cells of this version: built together, started and asked one by one."""

    def __init__(self, folder: Path) -> None:
        """Load this version's code; from nowhere else."""
        try:
            build = importlib.import_module("pipeline.sweep.build")
        except ModuleNotFoundError:
            build = importlib.import_module("pipeline.build")  # where it was until 2026-12-01
        found = Path(build.__file__ or "").resolve()
        if not found.is_relative_to(folder.resolve()):
            raise ImportError(f"pipeline was imported from {found}, not from {folder}")
        self._build_cells = build.build_cells
        self._planned: list[Any] = []
        self._sessions: dict[int, Any] = {}

    def build(self, jobs: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Build and check the cell of each job; return its record and its prompts' ids."""
        from hydra import compose, initialize_config_module

        with initialize_config_module("conf", version_base="1.3"):
            configs = [compose("config", overrides=list(job)) for job in jobs]
        self._planned = self._build_cells(configs, jobs, "refuse")
        return [
            {"record": asdict(plan.record), "prompts": [prompt.id for prompt in plan.prompts]}
            for plan in self._planned
        ]

    def start(self, cell: int) -> dict[str, str]:
        """Load a cell and warm it up; return what its engine resolved."""
        plan = self._planned[cell]
        session = plan.cell.engine.start(plan.cell)
        session.warm_up(list(plan.prompts))
        self._sessions[cell] = session
        return dict(session.settings())

    def answer(self, cell: int, prompt: int, repetition: int) -> dict[str, Any]:
        """Answer one prompt; return the response's fields."""
        asked = self._planned[cell].prompts[prompt]
        return asdict(self._sessions[cell].generate(asked, repetition))

    def proof(self, cell: int) -> dict[str, Any]:
        """Return what a cell's engine counted, and how that contradicts the cell's label."""
        proof = self._sessions[cell].proof()
        contradiction = proof.problem or self._planned[cell].cell.verify.contradiction(proof) or ""
        return {"proof": asdict(proof), "contradiction": contradiction}


def serve(cells: Cells, requests: Any, answers: Any) -> None:
    """Answer requests, each a method of `Cells` under `do` with its arguments, until none comes."""
    for line in requests:
        request: Mapping[str, Any] = json.loads(line)
        arguments = {name: value for name, value in request.items() if name != "do"}
        answers.write(json.dumps(getattr(cells, request["do"])(**arguments)) + "\n")
        answers.flush()


def main() -> None:
    """Keep the answers' stream apart from whatever else prints."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(Cells(Path(sys.argv[1])), sys.stdin, answers)


if __name__ == "__main__":
    main()
