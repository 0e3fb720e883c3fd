"""A head's weights on disk: as heads are published, or at a byte per weight.

The compact form is small enough to come with the package. A matrix is stored as 8-bit integers with
one scale for each row and one for each column: the columns of `fc` belong to channels of the target
whose sizes differ a thousandfold.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from drafters.json_object import weight_map

WEIGHTS, COMPACT = "model.safetensors", "model.int8.safetensors"
INDEX = f"{WEIGHTS}.index.json"
_LAYER = "layers.0."  # what some heads call the `midlayer.` of the others
_LARGEST = 127
_ROWS, _COLUMNS = ".rows", ".columns"


def stored_tensors(source: Path, wanted: Callable[[str], bool] = bool) -> dict[str, Tensor]:
    """Return tensors under the published names, as they are stored.

    Args:
        source: A head's folder, or one safetensors file.
        wanted: Says by its name whether a tensor is read.

    Raises:
        ValueError: A file is missing or damaged, or two tensors bear one name.
    """
    found: dict[str, Tensor] = {}
    for path, names in _files(source).items():
        try:
            with safe_open(path, "pt") as file:
                inside = file.keys()
                if lost := sorted(set(names or ()) - set(inside)):
                    raise ValueError(f"{path}: the index promises {lost[0]}, which is not in it")
                for name in names or inside:
                    if not wanted(published := published_name(name)):
                        continue
                    if published in found:
                        raise ValueError(f"{path}: two tensors are {published}; remove one")
                    found[published] = file.get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged ({error}); copy it again") from None
    return found


def published_name(name: str) -> str:
    """Return a tensor's usual name."""
    name = name.removeprefix("model.")
    return "midlayer." + name[len(_LAYER) :] if name.startswith(_LAYER) else name


def _files(source: Path) -> dict[Path, list[str]]:
    """Return the weights' files, each with the names that an index promises; without one none."""
    if source.is_file():
        return {source: []}
    for name in (COMPACT, WEIGHTS):
        if (source / name).is_file():
            return {source / name: []}
    if not (source / INDEX).is_file():
        others = sorted(p.name for p in source.glob("*") if p.suffix in (".bin", ".pt", ".pth"))
        found = f"only {others[0]}, which can run code when it is read" if others else "no weights"
        raise ValueError(
            f"{source} has no {WEIGHTS} ({found}); heads are read from safetensors files alone"
        )
    return _shards(source)


def _shards(folder: Path) -> dict[Path, list[str]]:
    """Return the files that a folder's index names, each with its tensors."""
    index, files = folder / INDEX, dict[Path, list[str]]()
    for name, part in weight_map(index).items():
        if not (folder / part).is_file():
            raise ValueError(f"{folder} has no {part}, which {INDEX} names; copy the head again")
        files.setdefault(folder / part, []).append(name)
    return files


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
    """Return the tensors of a compact file, matrices in bfloat16.

    Raises:
        ValueError: Scales are missing, or of another number than the matrix has rows and columns.
    """
    found = {}
    for name, tensor in stored.items():
        if name.endswith((_ROWS, _COLUMNS)):
            continue
        found[name] = tensor
        if f"{name}{_ROWS}" in stored:
            rows, columns = stored[f"{name}{_ROWS}"], stored.get(f"{name}{_COLUMNS}")
            if columns is None or tensor.shape != (*rows.shape, *columns.shape):
                raise ValueError(f"tensor {name} does not go with its scales; copy the head again")
            found[name] = (tensor.float() * rows[:, None] * columns).bfloat16()
    return found


def _sizes(matrix: Tensor, dim: int) -> Tensor:
    """Return the largest size along a dimension, never 0."""
    return matrix.abs().amax(dim=dim, keepdim=True).clamp(min=1e-20)
