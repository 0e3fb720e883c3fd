"""What the ranks of a plan share: flags, slots for their parts of a sum, and the head's logits."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from verify.native.structs import LIBRARY_SUM, TOP_BYTES, CRanks

MOST_RANKS = 8  # as ranks.h
TIMEOUT_S = 60.0  # a rank that is later than this has ended or hangs
_LINE = 64  # bytes of a cache line: flags of two ranks never share one


class RankLost(RuntimeError):
    """A rank did not come to a sum, so no rank can go on."""


class Place(NamedTuple):
    """One rank's place.

    Attributes:
        rank: 0 to `world - 1`.
        world: Ranks.
        vocabulary: Rows of the head that this rank computes.
    """

    rank: int
    world: int
    vocabulary: range


class Sizes(NamedTuple):
    """What the memory must hold: rows of one forward, of these with logits, and their widths."""

    max_rows: int
    max_logits: int
    hidden: int
    vocab: int

    @property
    def slot(self) -> int:
        """Floats of one rank's part of a sum."""
        return self.max_rows * self.hidden


class Segment:
    """Zeroed memory of the process that made it, mapped by others too; gone with the last of them.

    It has no name, so no kill can leave it behind.

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


class RankMemory:
    """One rank's view of the memory that all ranks of a plan map.

    Attributes:
        place: This rank's place.
        logits: [max_logits, V] float32, the same memory on every rank: each writes its columns.
        slots: [world, 2, max_rows * H] float32: what each rank adds to a sum, in turns.
    """

    def __init__(
        self,
        place: Place,
        sizes: Sizes,
        share: Callable[[str | None], str],
        library: Callable[[Tensor], None],
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Make the memory on rank 0, map it on the others.

        Args:
            place: This rank's place.
            sizes: Alike on every rank.
            share: Called once on every rank, with the memory's path on rank 0 and None elsewhere;
                returns the path everywhere, and only after rank 0 has called it.
            library: Sums a tensor over the ranks in place.
            timeout_s: How long a rank is waited for.

        Raises:
            ValueError: Too many ranks, or the memory cannot be had.
        """
        if place.world > MOST_RANKS:
            raise ValueError(
                f"parallelism.tp={place.world}: shared memory takes {MOST_RANKS} ranks"
            )
        self.place, self._library, self._error = place, library, ""
        self._hidden, self._timeout_s = sizes.hidden, timeout_s
        lengths = _lengths(place.world, sizes)
        total = sum(lengths.values())
        own = Segment(total) if place.rank == 0 else None
        path = share(own.path if own else None)
        self._segment = own or Segment(total, path)
        mapped = torch.frombuffer(self._segment.memory, dtype=torch.uint8)
        parts = torch.split_with_sizes(mapped, list(lengths.values()))
        part = dict(zip(lengths, parts, strict=True))
        self._lost = part["lost"].view(torch.int64)
        self.logits = _as_floats(part["logits"], sizes.max_logits, sizes.vocab)
        self.slots = _as_floats(part["slots"], place.world, 2, sizes.slot)
        self._callback = LIBRARY_SUM(self._sum)
        self._struct = CRanks(
            *(place.rank, place.world, sizes.slot, int(timeout_s * 1e9)),
            *(part[name].data_ptr() for name in ("lost", "arrivals", "slots", "tops")),
            *(place.vocabulary.start, 0, self._callback),
        )

    @property
    def address(self) -> int:
        """Of the C structure."""
        return ctypes.addressof(self._struct)

    def lose(self, rank: int) -> None:
        """Say that a rank has ended: whoever waits for it, or will, raises `RankLost`."""
        self._lost[0] = rank + 1

    def lost(self) -> RankLost:
        """Return the error of a step that ended because a rank did not come."""
        if self._error:
            return RankLost(f"the ranks' library could not sum: {self._error}")
        return RankLost(
            f"rank {int(self._lost[0]) - 1} did not come to a sum over ranks: its process ended or"
            f" hung for {self._timeout_s:g} s; its last words are in the cell's log"
        )

    def close(self) -> None:
        """Let go of the memory."""
        self._segment.close()

    def _sum(self, at: int, rows: int) -> int:
        """Sum a block's output by the library; called from C, where no exception may pass."""
        numbers = (ctypes.c_float * (rows * self._hidden)).from_address(at)
        try:
            self._library(torch.frombuffer(numbers, dtype=torch.float32))
        except RuntimeError as error:  # a peer's connection is gone
            self._error = str(error).splitlines()[0]
            return 1
        return 0


def _lengths(world: int, sizes: Sizes) -> dict[str, int]:
    """Return the memory's parts in their order, with their bytes; each begins a cache line."""
    sized = {
        "lost": 8,
        "arrivals": world * _LINE,
        "tops": world * sizes.max_rows * TOP_BYTES,
        "slots": world * 2 * sizes.slot * 4,
        "logits": sizes.max_logits * sizes.vocab * 4,
    }
    return {name: -(-size // _LINE) * _LINE for name, size in sized.items()}


def _as_floats(part: Tensor, *size: int) -> Tensor:
    """Return a part, which may be longer, as float32 of a size."""
    return part.view(torch.float32)[: math.prod(size)].view(size)
