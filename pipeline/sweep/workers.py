"""Define what a sweep asks of a launcher and of a worker, the process that holds one cell.

These protocols import nothing else of the sweep: Ray, the tests and the GPU box each bring their
own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol


class Launcher(Protocol):
    """Starts the workers of a sweep: in Ray (`pipeline.sweep.ray_launcher`), or here in tests."""

    @property
    def address(self) -> str:
        """`local`, or the cluster's address."""
        ...

    @property
    def resident(self) -> int:
        """Most cells that are loaded at once."""
        ...

    @property
    def gpus_per_cell(self) -> int:
        """GPUs reserved for a cell; 0 is what its engine asks for."""
        ...

    @property
    def start_timeout_s(self) -> float:
        """Longest start, and longest warm-up."""
        ...

    @property
    def repetition_timeout_s(self) -> float:
        """Longest turn: one prompt, or all of a repetition's where an engine must be alone."""
        ...

    @property
    def on_busy(self) -> str:
        """`wait` or `refuse` when another sweep runs on this machine."""
        ...

    def connect(self) -> AbstractContextManager[int]:
        """Make workers possible for the time of a sweep; gives the number of GPUs there."""
        ...

    def spawn(self, mark: str, gpus: int, log: Path) -> Worker:
        """Start a fresh worker process."""
        ...


class Worker(Protocol):
    """A process that holds one cell."""

    def begin(self, phase: str, *arguments: Any) -> None:
        """Begin a phase without waiting for it."""
        ...

    def result(self, timeout_s: float) -> Any:
        """Wait for the phase's result.

        Raises:
            WorkerFailed: It raised, died, or did not finish in time.
        """
        ...

    def kill(self) -> None:
        """End the process and all that it started, whatever it is doing."""
        ...


class WorkerFailed(Exception):
    """A worker raised, died or hung; the text is the reason, one line."""
