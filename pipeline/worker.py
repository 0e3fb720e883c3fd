"""A cell's process on Ray, seen from the driver; it is killed with all that it started."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

import psutil

from pipeline.config.messages import one_line
from pipeline.machine.reaper import CELL_MARK, kill_marked
from pipeline.sweep.running_cell import WorkerFailed

DEATH_TIMEOUT_S = 10.0
TOO_LATE = {  # by phase: the setting that limits it, and how else to stay within it
    "start": "; raise launcher.start_timeout_s above that",
    "warm_up": "; raise launcher.start_timeout_s above that",
    "answer": "; raise launcher.repetition_timeout_s, which limits a turn (a prompt, or all prompts"
    " of a server), or lower sampling.max_new_tokens",
}


class RayWorker:
    """A cell's process, seen from the driver.

    Attributes:
        pid: The process's id, once it has answered; -1 before.
    """

    def __init__(self, actor: Any, mark: str, is_local: bool) -> None:
        """Remember the actor; its process is still on its way."""
        self.pid = -1
        self._actor = actor
        self._mark = mark
        self._is_local = is_local
        self._phase = ""
        self._pending: Any = None

    def begin(self, phase: str, *arguments: Any) -> None:
        """Begin a phase of `CellRun` without waiting for it."""
        self._phase = phase
        self._pending = getattr(self._actor, phase).remote(*arguments)

    def result(self, timeout_s: float) -> Any:
        """Wait for the phase's result.

        Raises:
            WorkerFailed: It raised, its process died, or it did not finish in time.
        """
        import ray
        from ray.exceptions import GetTimeoutError, RayError, RayTaskError

        try:
            return ray.get(self._pending, timeout=timeout_s)
        except GetTimeoutError:
            way_out = TOO_LATE.get(self._phase, "")
            raise WorkerFailed(
                f"{self._phase} did not finish within {timeout_s:g} s{way_out}"
            ) from None
        except RayTaskError as error:
            raise WorkerFailed(f"{self._phase} raised {one_line(error.cause)}") from None
        except RayError as error:  # of memory that ran out, Ray says so in one of its own
            raise WorkerFailed(
                f"process {self.pid} died in {self._phase}: {_cause(error)}"
            ) from None

    def kill(self) -> None:
        """End the process and everything that it started."""
        import ray

        family = self._family() if self._is_local else []
        ray.kill(self._actor, no_restart=True)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(family, timeout=DEATH_TIMEOUT_S)
        kill_marked(f"{CELL_MARK}={self._mark}")  # orphans, in whatever process group

    def _family(self) -> list[psutil.Process]:
        """The process and its descendants, as far as they are alive."""
        try:
            worker = psutil.Process(self.pid)
            return [worker, *worker.children(recursive=True)]
        except (psutil.NoSuchProcess, ValueError):
            return []


def _cause(error: BaseException) -> str:
    """Say what Ray knows of a process's death; it sees no exit status."""
    from ray.exceptions import RayActorError

    if "low on memory" in str(error):
        return "Ray killed it because the machine's memory was nearly full"
    if not isinstance(error, RayActorError):
        return one_line(error)
    return "killed from outside, out of memory, or crashed; its log may say more"
