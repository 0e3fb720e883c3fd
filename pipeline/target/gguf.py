"""Read a GGUF file: its metadata and its tensors as stored blocks, and what the blocks mean.

Source: the GGUF specification, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

The `gguf` package unpacks the same bits, but keeps an array for each part of each string: it opens
the embedded target in 4.4 s and 170 MB of memory, where this takes 1 s and 13 MB.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Blocks = npt.NDArray[np.uint8]

# GGUF's number of a tensor type -> our name, values in a block, bytes of a block.
FORMATS = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    3: ("q4_1", 32, 20),
    8: ("q8_0", 32, 34),
    30: ("bf16", 1, 2),
}
_STRING, _ARRAY = 8, 9
# GGUF's number of a metadata type -> struct code.
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}


class GgufTensor(NamedTuple):
    """One tensor as it lies in the file.

    Attributes:
        fmt: Name of the block format, a value of `FORMATS`.
        shape: Rows and columns, or one length; outermost first, as in torch.
        data: [rows, bytes per row] (one row for a vector), read-only, mapped from the file.
    """

    fmt: str
    shape: tuple[int, ...]
    data: Blocks


@dataclass(frozen=True)
class Gguf:
    """An opened file: metadata by its own key names, tensors by GGUF's own names."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def required(self, key: str) -> Any:
        """Return a metadata value.

        Raises:
            ValueError: The file lacks it.
        """
        if key not in self.metadata:
            raise ValueError(f"{self.path}: metadata {key} is missing")
        return self.metadata[key]


def read_gguf(path: Path) -> Gguf:
    """Open a GGUF file; tensors stay on disk until they are touched.

    Raises:
        ValueError: Not GGUF, cut short, or a tensor type that we cannot unpack.
    """
    empty = path.stat().st_size == 0  # which cannot be mapped
    data: Blocks = np.zeros(0, np.uint8) if empty else np.memmap(path, np.uint8, "r")
    cursor = _Cursor(data)
    try:
        if cursor.take(4) != b"GGUF" or cursor.scalar("I") not in (2, 3):
            raise ValueError(f"{path}: not a GGUF file of version 2 or 3")
        num_tensors, num_entries = cursor.scalar("Q"), cursor.scalar("Q")
        metadata = {cursor.string(): cursor.value() for _ in range(num_entries)}
        infos = [_tensor_info(cursor) for _ in range(num_tensors)]
    except (struct.error, UnicodeDecodeError, KeyError, RecursionError) as error:
        raise ValueError(
            f"{path}: damaged GGUF header ({error}); install or copy it again"
        ) from None
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"{path}: general.alignment={alignment} is no number of bytes")
    start = -(-cursor.offset // alignment) * alignment
    return Gguf(path, metadata, {i[0]: _tensor(path, data, start, *i) for i in infos})


def dequantise(fmt: str, data: Blocks) -> npt.NDArray[np.float32]:
    """Return the values of stored rows.

    Args:
        fmt: Name of the block format.
        data: [rows, bytes per row].

    Returns:
        [rows, values per row], bit-equal to ggml's own unpacking.

    Raises:
        ValueError: The format is unknown.
    """
    rows = len(data)
    if fmt == "bf16":
        wide: npt.NDArray[np.float32] = (data.view(np.uint16).astype(np.uint32) << 16).view(
            np.float32
        )
        return wide
    if fmt == "f32":
        return data.view(np.float32)
    if fmt == "f16":
        return data.view(np.float16).astype(np.float32)
    if fmt == "q8_0":
        blocks = data.reshape(-1, 34)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        values: npt.NDArray[np.float32] = blocks[:, 2:].view(np.int8) * scale
    elif fmt == "q4_1":
        blocks = data.reshape(-1, 20)
        scale, low = blocks[:, :4].copy().view(np.float16).astype(np.float32).T[:, :, None]
        digits = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
        values = digits * scale + low
    else:
        raise ValueError(f"unknown block format {fmt!r}")
    return values.reshape(rows, -1)


class _Cursor:
    """Reads little-endian values one after another."""

    def __init__(self, data: Blocks) -> None:
        self.data = data
        self.offset = 0

    def take(self, size: int) -> bytes:
        piece = self.data[self.offset : self.offset + size].tobytes()
        if len(piece) < size:
            raise struct.error(f"file ends at byte {len(self.data)}")
        self.offset += size
        return piece

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self) -> str:
        return self.take(self.scalar("Q")).decode()

    def value(self, kind: int | None = None) -> Any:
        kind = self.scalar("I") if kind is None else kind
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            item, length = self.scalar("I"), self.scalar("Q")
            return [self.value(item) for _ in range(length)]
        return self.scalar(_SCALARS[kind])


def _tensor_info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Return name, shape (outermost first), type number and offset in the tensor section."""
    name = cursor.string()
    shape = tuple(cursor.scalar("Q") for _ in range(cursor.scalar("I")))[::-1]
    return name, shape, cursor.scalar("I"), cursor.scalar("Q")


def _tensor(
    path: Path, data: Blocks, start: int, name: str, shape: tuple[int, ...], kind: int, offset: int
) -> GgufTensor:
    """Return a tensor's rows as a view of the file."""
    if kind not in FORMATS:
        known = ", ".join(fmt for fmt, _, _ in FORMATS.values())
        raise ValueError(f"{path}: {name} has GGML type {kind}; only {known} can be read")
    fmt, values, size = FORMATS[kind]
    rows = math.prod(shape[:-1])
    if not shape or 0 in shape or shape[-1] % values:
        raise ValueError(f"{path}: {name} has shape {shape}, not whole {fmt} blocks")
    num_bytes = rows * shape[-1] // values * size
    piece = data[start + offset : start + offset + num_bytes]
    if len(piece) < num_bytes:
        raise ValueError(f"{path}: cut short inside {name}; install or copy it again")
    return GgufTensor(fmt, shape, piece.reshape(rows, -1))
