"""One product of packed weights, for the eager engine: the kernel of the plan without the plan."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from verify.native.packed import Packed, as_struct, check


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
