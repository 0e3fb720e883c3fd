"""A head at a byte per weight, small enough to come with the package.

A matrix is stored as 8-bit integers with one scale for each row and one for each column: the
columns of `fc` belong to channels of the target whose sizes differ a thousandfold.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

WEIGHTS, COMPACT = "model.safetensors", "model.int8.safetensors"
_LARGEST = 127
_ROWS, _COLUMNS = ".rows", ".columns"


def weights_file(folder: Path) -> Path:
    """Return where a head's folder keeps its weights, compact or as published."""
    compact = folder / COMPACT
    return compact if compact.is_file() else folder / WEIGHTS


def write_compact(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a head's tensors to one file: matrices as bytes with scales, all else as it is."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dim() != 2:
            stored[name] = tensor.contiguous()
            continue
        wide = tensor.float()
        columns = _sizes(wide, 0)
        rows = _sizes(wide / columns, 1) / _LARGEST
        stored[name] = (wide / columns / rows).round().to(torch.int8)
        stored |= {f"{name}{_ROWS}": rows.flatten(), f"{name}{_COLUMNS}": columns.flatten()}
    save_file(stored, path)


def widened(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a compact file, matrices in bfloat16."""
    found = {}
    for name, tensor in stored.items():
        if name.endswith((_ROWS, _COLUMNS)):
            continue
        found[name] = tensor
        if f"{name}{_ROWS}" in stored:
            rows, columns = stored[f"{name}{_ROWS}"], stored[f"{name}{_COLUMNS}"]
            found[name] = (tensor.float() * rows[:, None] * columns).bfloat16()
    return found


def _sizes(matrix: Tensor, dim: int) -> Tensor:
    """Return the largest size along a dimension, never 0."""
    return matrix.abs().amax(dim=dim, keepdim=True).clamp(min=1e-20)
