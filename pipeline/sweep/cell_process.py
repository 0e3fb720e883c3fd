"""One cell in its own process: start → warm up → repeat → stop.

Nothing heavy is imported here: settings that libraries read when they load (OpenMP's waiting
policy) must be in the environment before `start` loads the cell and torch with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.machine.reaper import CELL_MARK, leave_nothing

if TYPE_CHECKING:
    from pipeline.cell.response import Response, Session
    from pipeline.workload.prompts import Prompt
    from verify.base import Proof

OWN = "specroi: "  # begins each line of our own in a log that is the engine's


class WarmUp(NamedTuple):
    """What the engine resolved (threads, dtype, versions), and the seconds the warm-up took."""

    settings: dict[str, str]
    seconds: float


class Repetition(NamedTuple):
    """Responses in the order of the prompts, the seconds they took, and the proof so far.

    A turn gives a part of one, the turns of a round make it whole.
    """

    responses: tuple[Response, ...]
    seconds: float
    proof: Proof


class CellProcess:
    """A cell's process; each method is one phase, asked for by the driver.

    Attributes:
        environment: Set before any library loads; what the cell starts inherits it.
        log: File that takes everything this process and its children print; None leaves the
            streams alone.
        place: Folder that the cell's relative paths start from; one that this machine lacks
            leaves the process where it is.
    """

    def __init__(
        self, environment: Mapping[str, str], log: Path | None = None, place: Path | None = None
    ) -> None:
        """Point the streams at the log, so that even a crash in C leaves its last words there."""
        os.environ |= environment
        if place is not None and place.is_dir():
            os.chdir(place)
        self._session: Session | None = None
        self._prompts: list[Prompt] = []
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            _redirect(log)

    def pid(self) -> int:
        """Return the process's id; the first call that a live worker answers."""
        return os.getpid()

    def start(self, cell: bytes, prompts: bytes) -> float:
        """Load the pickled cell and prompts, start the cell's engine, and return the seconds."""
        begun = time.perf_counter()
        if mark := os.environ.get(CELL_MARK):
            leave_nothing(f"{CELL_MARK}={mark}")
        with _logged("start"):
            loaded = pickle.loads(cell)
            self._prompts = list(pickle.loads(prompts))
            self._session = loaded.engine.start(loaded)
        return time.perf_counter() - begun

    def warm_up(self) -> WarmUp:
        """Run once, uncounted, what will be measured."""
        begun = time.perf_counter()
        with _logged("warm-up"):
            self._started.warm_up(self._prompts)
            return WarmUp(self._started.settings(), time.perf_counter() - begun)

    def answer(self, number: int, first: int, count: int) -> Repetition:
        """Answer `count` prompts from place `first` on, in repetition `number`."""
        begun = time.perf_counter()
        with _logged(f"repetition {number}"):
            prompts = self._prompts[first : first + count]
            responses = _answer(self._started, prompts, number)
            seconds = time.perf_counter() - begun
            return Repetition(responses, seconds, self._started.proof())

    def stop(self) -> None:
        """Stop what the engine started; doing it twice does no harm."""
        with _logged("stop"):
            if self._session is not None:
                self._session.close()
                self._session = None

    @property
    def _started(self) -> Session:
        """The session, which only exists after `start`."""
        if self._session is None:
            raise RuntimeError("the cell was not started")
        return self._session


def _answer(session: Session, prompts: Sequence[Prompt], number: int) -> tuple[Response, ...]:
    """Answer one prompt after the other, or as many at once as the session does."""
    from pipeline.cell.response import AnswersTogether

    if isinstance(session, AnswersTogether):
        return tuple(session.answer(prompts, number))
    return tuple(session.generate(prompt, number) for prompt in prompts)


@contextlib.contextmanager
def _logged(phase: str) -> Iterator[None]:
    """Leave an error's trace in the log too, marked: what a person is shown is the engine's."""
    try:
        yield
    except BaseException as error:
        lines = traceback.format_exc().splitlines()
        lines.append(f"{phase} failed: {type(error).__name__}: {error}".replace("\n", " "))
        sys.stderr.write("".join(f"{OWN}{line}\n" for line in lines))
        sys.stderr.flush()
        raise


def _redirect(log: Path) -> None:
    """Send file descriptors 1 and 2 to the log; a traceback of every thread on a crash."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  (a descriptor)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    faulthandler.enable(file=2)
