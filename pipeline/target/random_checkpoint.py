"""Random weights of a given shape: to study what a step costs, never what it accepts."""

from __future__ import annotations

import hashlib
import zlib
from typing import NoReturn

import torch
from torch import Tensor

from pipeline.target.shape import tensor_shapes
from verify.base import TargetShape


class RandomCheckpoint:
    """Stands where a `Checkpoint` stands; tensors are drawn when they are asked for.

    Attributes:
        names: Every tensor that the model needs, by Hugging Face's names.
        digest: Identity of the weights, 64 hex digits.
    """

    def __init__(self, shape: TargetShape, dtype: torch.dtype = torch.float32) -> None:
        """Remember the shape; nothing is drawn yet."""
        self._shape = shape
        self._dtype = dtype
        self._sizes = tensor_shapes(shape)
        self.names = tuple(self._sizes)
        self.digest = hashlib.sha256(f"random {shape} {dtype}".encode()).hexdigest()

    def shape(self) -> TargetShape:
        """Return the model's shape."""
        return self._shape

    def tensor(self, name: str, device: torch.device | str = "cpu") -> Tensor:
        """Draw one tensor on the device: norms, [H], are ones, matrices, [out, in], are normal.

        A matrix has variance 1 / columns, so that activations keep their size through the layers.
        The same name gives the same values on the same kind of device.
        """
        size = self._sizes[name]
        if len(size) == 1:
            return torch.ones(size, dtype=self._dtype, device=device)
        generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
        drawn = torch.randn(size, generator=generator, dtype=self._dtype, device=device)
        return drawn.mul_(size[1] ** -0.5)

    def tensors(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Draw every tensor by name: norms [H], matrices [out, in], of the checkpoint's type."""
        return {name: self.tensor(name, device) for name in self.names}

    def packed(self) -> None:
        """Return None: nothing is quantised."""

    def tokenizer(self) -> NoReturn:
        """Refuse.

        Raises:
            ValueError: Always; random weights have no tokenizer.
        """
        raise ValueError("random weights have no tokenizer; choose another target for real text")
