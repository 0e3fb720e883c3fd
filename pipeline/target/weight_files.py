"""A checkpoint's weight files, checked by their headers alone: without a weight, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from safetensors import SafetensorError, safe_open

from drafters.json_object import weight_map
from pipeline.target.shape import read_shape, tensor_shapes
from verify.base import TargetShape

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLED = (".bin", ".pt", ".pth")
_DTYPES = ("F32", "F16", "BF16")


def tensor_files(folder: Path) -> dict[str, Path]:
    """Return the file that holds each tensor: of a single file, or of an index of shards.

    Raises:
        ValueError: There are no safetensors files, one is missing or damaged, or the index names a
            tensor that its file lacks.
    """
    single, index = folder / _SINGLE, folder / _INDEX
    if single.is_file():
        return dict.fromkeys(_names(single), single)
    if not index.is_file():
        others = sorted(p.name for p in folder.iterdir() if p.suffix in _PICKLED)
        found = f"only {others[0]}, which can run code when it is read" if others else "no weights"
        raise ValueError(f"{folder} has {found}; give a folder with safetensors files")
    files = {name: folder / part for name, part in weight_map(index).items()}
    if lost := sorted({path.name for path in files.values() if not path.is_file()}):
        raise ValueError(f"{folder}: {lost[0]} is missing ({len(lost)} of its index's files)")
    inside = {path: _names(path) for path in set(files.values())}
    for name, path in files.items():
        if name not in inside[path]:
            raise ValueError(f"{path}: the index promises {name}, which is not in the file")
    return files


def llama_files(folder: Path) -> tuple[TargetShape, dict[str, Path]]:
    """Return a plain Llama checkpoint's shape, and the file that holds each tensor.

    Raises:
        ValueError: Another architecture, other files than safetensors, or a tensor that is
            missing, unknown, or of another shape or type than the configuration says.
    """
    shape, files = read_shape(folder), tensor_files(folder)
    expected = tensor_shapes(shape)
    _check_names(folder, set(files), set(expected), shape.tie_word_embeddings)
    for path in sorted(set(files.values())):
        _check_headers(path, {name: expected[name] for name in expected if files[name] == path})
    return shape, files


def opened(path: Path, framework: Literal["pt", "np"] = "pt") -> safe_open:
    """Open a safetensors file; a damaged one gives one line."""
    try:
        return safe_open(path, framework)
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged ({error}); copy it again, or delete its folder in the cache"
        ) from None


def _names(path: Path) -> set[str]:
    with opened(path, "np") as file:
        return set(file.keys())


def _check_names(folder: Path, names: set[str], expected: set[str], tied: bool) -> None:
    """Refuse missing and unknown tensors."""
    unused: tuple[str, ...] = ("rotary_emb.inv_freq",)  # a constant that older files carry
    if tied:
        unused += ("lm_head.weight",)
    found = {name for name in names if not name.endswith(unused)}
    if missing := sorted(expected - found):
        raise ValueError(f"{folder}: tensor {missing[0]} is missing ({len(missing)} in all)")
    if unknown := sorted(found - expected):
        raise ValueError(
            f"{folder}: tensor {unknown[0]} is not part of a plain Llama model"
            f" ({len(unknown)} such in all)"
        )


def _check_headers(path: Path, expected: dict[str, tuple[int, ...]]) -> None:
    """Refuse a tensor whose shape or type is not the configuration's."""
    with opened(path, "np") as file:
        for name, shape in expected.items():
            piece = file.get_slice(name)
            if tuple(piece.get_shape()) != shape:
                raise ValueError(
                    f"{path}: {name} is {tuple(piece.get_shape())}, but config.json asks for"
                    f" {shape}"
                )
            if piece.get_dtype() not in _DTYPES:
                raise ValueError(
                    f"{path}: {name} is {piece.get_dtype()}; only {', '.join(_DTYPES)} are read"
                )
