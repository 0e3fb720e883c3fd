"""Memory that processes of one machine share. It has no name, so no kill can leave it behind."""

from __future__ import annotations

import mmap
import os


class Segment:
    """Zeroed memory of the process that made it, mapped by others too; gone with the last of them.

    Attributes:
        memory: The bytes.
        path: What another process of the same user opens, while the maker holds its descriptor.
    """

    def __init__(self, size: int, path: str | None = None) -> None:
        """Make `size` bytes, or map the ones that another process made.

        Raises:
            ValueError: The memory is not there: its maker has ended, or there is too little.
        """
        try:
            if path is None:
                self._descriptor = os.memfd_create("specroi")
                os.ftruncate(self._descriptor, size)
                path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
            else:
                self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            self.memory = mmap.mmap(self._descriptor, size)
        except OSError as error:
            raise ValueError(
                f"parallelism.tp: {size} bytes of shared memory cannot be had ({error.strerror});"
                " set parallelism.tp=1"
            ) from None
        self.path = path

    def close(self) -> None:
        """Let go of the descriptor; the memory stays while something points into it."""
        os.close(self._descriptor)
