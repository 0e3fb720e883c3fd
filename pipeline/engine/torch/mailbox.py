"""Commands from rank 0 to the other ranks, through shared memory: a socket would cost a step.

Followers spin for a moment after each command, because the next one usually comes within a step,
and then sleep between looks.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

_CAPACITY = 1 << 20  # bytes of one command
_SPIN_S = 0.05
_PAUSE_S = 2e-4
_POSTED, _SIZE, _SEEN = 0, 1, 2  # words of the header; one `seen` for each follower


class Mailbox:
    """One writer, several readers, one command at a time."""

    def __init__(self, num_readers: int, name: str | None = None) -> None:
        """Make the memory, or open the one called `name`."""
        self._words_size = _SEEN + num_readers
        size = 8 * self._words_size + _CAPACITY
        self._memory = SharedMemory(name, create=name is None, size=size)
        buffer = self._memory.buf
        assert buffer is not None
        self._words = np.ndarray(self._words_size, np.int64, buffer)
        self._payload = buffer[8 * self._words_size :]
        self._owner = name is None
        if self._owner:
            self._words[:] = 0

    @property
    def name(self) -> str:
        """What readers open."""
        return self._memory.name

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
            deadline = time.perf_counter() + _SPIN_S
            while self._words[_POSTED] == seen:
                time.sleep(0 if time.perf_counter() < deadline else _PAUSE_S)
                if os.getppid() != parent:
                    return
            seen += 1
            data = bytes(self._payload[: self._words[_SIZE]])
            self._words[_SEEN + reader] = seen
            command, arguments = pickle.loads(data)
            yield command, arguments

    def close(self) -> None:
        """Free the memory; the writer also removes its name."""
        del self._words
        self._payload.release()
        self._memory.close()
        if self._owner:
            self._memory.unlink()
