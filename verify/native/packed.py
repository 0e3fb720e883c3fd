"""Weights as the C code reads them, raw rows of bytes and a format, and one product of them."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

# Name -> (its number in formats.h, bytes of 32 weights).
FORMATS = {"q4_1": (0, 20), "q8_0": (1, 34), "f16": (2, 64), "bf16": (3, 64), "f32": (4, 128)}
BLOCK = 32
_DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


class Packed(NamedTuple):
    """A weight matrix in its stored format.

    Attributes:
        fmt: `q4_1` or `q8_0` (blocks of 32 weights exactly as in a GGUF file), `f16`, `bf16`,
            `f32`.
        data: [rows, bytes per row] uint8, contiguous, on the CPU.
        rows: Outputs.
        cols: Inputs; a multiple of 32.
    """

    fmt: str
    data: Tensor
    rows: int
    cols: int


class CWeight(ctypes.Structure):
    """`Weight` of formats.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
        ("format", ctypes.c_int64),
    )


def pack(weight: Tensor) -> Packed:
    """View a [rows, cols] float16, bfloat16 or float32 matrix as packed, without a copy.

    Raises:
        ValueError: Another dtype or number of dimensions.
    """
    if weight.dtype not in _DTYPES or weight.dim() != 2:
        raise ValueError(
            f"a weight of dtype {weight.dtype} and shape {list(weight.shape)}: the native step"
            " takes matrices of float16, bfloat16 or float32"
        )
    rows, cols = weight.shape
    return Packed(_DTYPES[weight.dtype], weight.contiguous().view(torch.uint8), rows, cols)


def check(packed: Packed, name: str, shape: tuple[int, int]) -> None:
    """Refuse what the C code would misread.

    Raises:
        ValueError: An unknown format, a wrong shape, or data of another size, naming the weight.
    """
    if packed.fmt not in FORMATS:
        raise ValueError(f"{name}: format {packed.fmt}, known are {', '.join(FORMATS)}")
    if (packed.rows, packed.cols) != shape:
        raise ValueError(f"{name}: [{packed.rows}, {packed.cols}], the model needs {list(shape)}")
    if packed.cols % BLOCK:
        raise ValueError(f"{name}: {packed.cols} columns, the native step needs a multiple of 32")
    wanted = (packed.rows, packed.cols // BLOCK * FORMATS[packed.fmt][1])
    data = packed.data
    if tuple(data.shape) != wanted or data.dtype != torch.uint8 or not data.is_contiguous():
        raise ValueError(
            f"{name}: data is {list(data.shape)} {data.dtype}, {packed.fmt} needs contiguous"
            f" {list(wanted)} torch.uint8"
        )


def part_of(packed: Packed, axis: int, part: range) -> Packed:
    """Return a copy of a range of rows (axis 0) or columns (axis 1).

    Raises:
        ValueError: The columns begin or end inside a block.
    """
    if axis == 0:
        return packed._replace(data=packed.data[part.start : part.stop].clone(), rows=len(part))
    if part.start % BLOCK or part.stop % BLOCK:
        raise ValueError(
            f"columns {part.start} to {part.stop - 1} of a {packed.fmt} matrix: packed weights are"
            f" split between blocks of {BLOCK}; use engine.native=off"
        )
    blocks = packed.data.view(packed.rows, packed.cols // BLOCK, -1)
    own = blocks[:, part.start // BLOCK : part.stop // BLOCK].reshape(packed.rows, -1).clone()
    return packed._replace(data=own, cols=len(part))


def as_struct(packed: Packed) -> CWeight:
    """The C view; it does not keep the data alive."""
    number, block_bytes = FORMATS[packed.fmt]
    row_bytes = packed.cols // BLOCK * block_bytes
    return CWeight(packed.data.data_ptr(), packed.rows, packed.cols, row_bytes, number)


class Linear:
    """A bias-free linear layer over packed weights.

    A row's result has the same bits in a call of any number of rows, on any number of threads.
    """

    def __init__(self, packed: Packed, threads: int, library: ctypes.CDLL) -> None:
        """Bind the weights; `library` is from `verify.native.build.load`.

        Raises:
            ValueError: The packed weight is inconsistent.
        """
        check(packed, "linear weight", (packed.rows, packed.cols))
        self.packed = packed
        self._threads = threads
        self._struct = as_struct(packed)
        self._weight = ctypes.addressof(self._struct)
        self._call = library.native_linear

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Return x W^T.

        Args:
            x: [K, cols] float32, contiguous, on the CPU.
            out: [K, rows] float32, contiguous; a new tensor if left out.

        Raises:
            ValueError: `x` or `out` has another shape, dtype or layout.
        """
        rows = x.shape[0]
        if out is None:
            out = x.new_empty(rows, self.packed.rows)
        if x.shape[1] != self.packed.cols or out.shape != (rows, self.packed.rows):
            raise ValueError(
                f"linear of {list(x.shape)} into {list(out.shape)}: the weight is"
                f" [{self.packed.rows}, {self.packed.cols}]"
            )
        if not (x.dtype == out.dtype == torch.float32 and x.is_contiguous()):
            raise ValueError(f"linear of {x.dtype}: contiguous float32 in and out")
        self._call(self._weight, x.data_ptr(), rows, out.data_ptr(), self._threads)
        return out
