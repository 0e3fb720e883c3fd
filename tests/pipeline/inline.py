"""Workers in this process: everything of a sweep but Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.sweep.cell_process import CellProcess
from pipeline.sweep.running_cell import WorkerFailed
from pipeline.sweep.settings import Settings
from pipeline.sweep.stop_rule import StopRule


@dataclass
class InlineWorker:
    """Runs a phase when its result is asked for."""

    log: list[tuple[str, str]]
    mark: str
    run: CellProcess = field(default_factory=lambda: CellProcess({}))
    phase: tuple[str, tuple[Any, ...]] = ("", ())

    def begin(self, phase: str, *arguments: Any) -> None:
        self.phase = (phase, arguments)

    def result(self, timeout_s: float) -> Any:
        name, arguments = self.phase
        self.log.append((self.mark, name))
        try:
            return getattr(self.run, name)(*arguments)
        except RuntimeError as error:
            raise WorkerFailed(f"{name} raised {error}") from None

    def kill(self) -> None:
        self.log.append((self.mark, "kill"))
        self.run.stop()


@dataclass
class InlineLauncher:
    """Spawns workers in this process and notes what they did, in order."""

    address: str = "inline"
    resident: int = 8
    gpus_per_cell: int = 0
    start_timeout_s: float = 1
    repetition_timeout_s: float = 1
    on_busy: str = "refuse"
    num_gpus: int = 0
    log: list[tuple[str, str]] = field(default_factory=list)

    @contextlib.contextmanager
    def connect(self) -> Iterator[int]:
        yield self.num_gpus

    def spawn(self, mark: str, gpus: int, log: Path) -> InlineWorker:
        return InlineWorker(self.log, mark.rsplit("/", 1)[-1])


def make_settings(runs: Path, launcher: InlineLauncher, **changed: Any) -> Settings:
    return Settings(
        **{
            "runs": runs,
            "resume": False,
            "launcher": launcher,
            "stop_rule": StopRule(min_repetitions=3, max_repetitions=3),
            "tracking_uri": f"sqlite:///{runs}/mlflow.db",
            "experiment": "tests",
        }
        | changed
    )
