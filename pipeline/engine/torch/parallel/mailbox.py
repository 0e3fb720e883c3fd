"""Commands from rank 0 to the other ranks, through shared memory: a socket would cost a step.

Followers spin for a moment after each command, because the next one usually comes within a step,
and then sleep between looks, longer and longer: another cell may be at work for minutes.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from verify.native.ranks import Segment

_CAPACITY = 1 << 20  # bytes of one command
_SPIN_S = 0.05
_PAUSE_S, _LONGEST_PAUSE_S = 2e-4, 1e-2
_POSTED, _SIZE, _SEEN = 0, 1, 2  # words of the header; one `seen` for each follower


class Mailbox:
    """One writer, several readers, one command at a time."""

    def __init__(self, num_readers: int, path: str | None = None) -> None:
        """Make the memory, or open the one at `path`."""
        words = _SEEN + num_readers
        self._memory = Segment(8 * words + _CAPACITY, path)
        self._words = np.ndarray(words, np.int64, self._memory.memory)
        self._payload = memoryview(self._memory.memory)[8 * words :]

    @property
    def path(self) -> str:
        """What readers open."""
        return self._memory.path

    def post(self, command: str, *arguments: Any) -> None:
        """Hand a command to every reader, once all have read the one before.

        Raises:
            ValueError: The command does not fit.
        """
        data = pickle.dumps((command, arguments), protocol=5)
        if len(data) > _CAPACITY:
            raise ValueError(f"a command of {len(data)} bytes does not fit {_CAPACITY}")
        posted = int(self._words[_POSTED])
        while (self._words[_SEEN:] != posted).any():
            time.sleep(0)
        self._payload[: len(data)] = data
        self._words[_SIZE] = len(data)
        self._words[_POSTED] = posted + 1  # last: readers look at this one

    def commands(self, reader: int, parent: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield commands until the writer's process is gone.

        Args:
            reader: 0 to `num_readers - 1`.
            parent: Process id of the writer, which started this process.
        """
        seen = 0
        while True:
            deadline, pause = time.perf_counter() + _SPIN_S, _PAUSE_S
            while self._words[_POSTED] == seen:
                if time.perf_counter() < deadline:
                    time.sleep(0)
                else:
                    time.sleep(pause)
                    pause = min(pause * 1.1, _LONGEST_PAUSE_S)
                if os.getppid() != parent:
                    return
            seen += 1
            data = bytes(self._payload[: self._words[_SIZE]])
            self._words[_SEEN + reader] = seen
            command, arguments = pickle.loads(data)
            yield command, arguments

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()
