"""A head's folder in the published format: checked before anything is computed with it.

SGLang skips tensors whose names it does not know and reads any `d2t` as offsets, so that a wrong
folder serves with low acceptance instead of failing. Here each of these is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from drafters.eagle3.compact import COMPACT, WEIGHTS, weights_file, widened, write_compact
from drafters.eagle3.shape import HeadShape, read_config, tensor_shapes, write_config
from drafters.json_object import json_object
from drafters.vocab.load import StoredMap, checked
from drafters.vocab.maps import VocabMap, identity
from verify.base import TargetShape

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MAPS = ("d2t", "t2d")
_EMBEDDING = "embed_tokens.weight"  # engines put the target's own in its place


@dataclass(frozen=True, eq=False)
class Head:
    """A checked head.

    Attributes:
        tensors: Trained tensors by the names of `tensor_shapes`.
        vocab: Its draft vocabulary.
        capture_ids: Layer ids of its configuration; empty for the default ones.
    """

    shape: HeadShape
    tensors: dict[str, Tensor]
    vocab: VocabMap
    capture_ids: tuple[int, ...] = ()


def load_head(folder: Path) -> Head:
    """Read a head's folder.

    Raises:
        ValueError: A file is missing or damaged, a tensor is missing, unknown or of another shape
            or type, or the draft vocabulary is not sound; the text names tensor, rule and fix.
    """
    shape, ids = read_config(_json(folder / "config.json"), str(folder / "config.json"))
    path = weights_file(folder)
    stored = _tensors(path)
    tensors = _canonical(widened(stored) if path.name == COMPACT else stored)
    maps = {name: tensors.pop(name) for name in _MAPS if name in tensors}
    tensors.pop(_EMBEDDING, None)
    _check(tensors, shape, str(path))
    return Head(shape, tensors, _vocab(maps, shape, str(path)), ids)


def save_head(head: Head, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a head's folder, each file whole or not at all.

    Args:
        head: The head.
        folder: Made if it is not there.
        dtype: Type of the stored weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: part.to(dtype).contiguous() for name, part in head.tensors.items()}
    partial = folder / f"{WEIGHTS}.partial"
    save_file(tensors | _stored_maps(head), partial, metadata={"format": "pt"})
    partial.replace(folder / WEIGHTS)
    _write_config(head, folder, dtype)


def save_compact(head: Head, folder: Path) -> None:
    """Write a head's folder at a byte per weight; `load_head` reads it, SGLang does not."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"{COMPACT}.partial"
    write_compact(head.tensors | _stored_maps(head), partial)
    partial.replace(folder / COMPACT)
    _write_config(head, folder, torch.bfloat16)


def check_fits(shape: HeadShape, target: TargetShape, source: str) -> None:
    """Refuse a head of another target.

    Raises:
        ValueError: Hidden size or vocabulary differ.
    """
    for name in ("hidden_size", "vocab_size"):
        ours, wanted = getattr(shape, name), getattr(target, name)
        if ours != wanted:
            raise ValueError(
                f"{source}: {name}={ours}, but the target has {wanted}: this head was trained for"
                " another target; choose one of this target, or train it"
            )


def _stored_maps(head: Head) -> dict[str, Tensor]:
    return {"d2t": head.vocab.d2t, "t2d": head.vocab.t2d}


def _write_config(head: Head, folder: Path, dtype: torch.dtype) -> None:
    config = write_config(head.shape, head.capture_ids, str(dtype).removeprefix("torch."))
    partial = folder / "config.json.partial"
    partial.write_text(json.dumps(config, indent=2) + "\n")
    partial.replace(folder / "config.json")


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path.parent} has no {path.name}; give the folder of an EAGLE-3 head")
    return json_object(path)


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ValueError(
            f"{path.parent} has no {path.name}; heads are read from one safetensors file"
        )
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}); copy the head again") from None


def _canonical(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under one set of names; some heads call the layer `layers.0`."""

    def name_of(name: str) -> str:
        name = name.removeprefix("model.")
        return "midlayer." + name[len("layers.0.") :] if name.startswith("layers.0.") else name

    return {name_of(name): tensor for name, tensor in tensors.items()}


def _check(tensors: dict[str, Tensor], shape: HeadShape, source: str) -> None:
    expected = tensor_shapes(shape)
    if missing := [name for name in expected if name not in tensors]:
        raise ValueError(f"{source}: tensor {missing[0]} is missing ({len(missing)} in all)")
    if unknown := sorted(set(tensors) - set(expected)):
        raise ValueError(
            f"{source}: tensor {unknown[0]} is not part of an EAGLE-3 head ({len(unknown)} such in"
            " all); engines would skip it without a word: rename or remove it"
        )
    for name, size in expected.items():
        if tuple(tensors[name].shape) != size:
            raise ValueError(
                f"{source}: {name} is {tuple(tensors[name].shape)}, but config.json asks for {size}"
            )
        if tensors[name].dtype not in _DTYPES:
            raise ValueError(
                f"{source}: {name} is {tensors[name].dtype}; only float32, float16 and bfloat16"
                " are read"
            )


def _vocab(maps: dict[str, Tensor], shape: HeadShape, source: str) -> VocabMap:
    if "d2t" not in maps:
        if shape.draft_vocab_size < shape.vocab_size:
            raise ValueError(
                f"{source}: d2t is missing, but draft_vocab_size={shape.draft_vocab_size} is below"
                f" vocab_size={shape.vocab_size}: without it slots are taken for token ids; take"
                " d2t from the head's training run"
            )
        return identity(shape.vocab_size)
    mask = maps.get("t2d")
    for name, size in (("d2t", shape.draft_vocab_size), ("t2d", shape.vocab_size)):
        if name in maps and tuple(maps[name].shape) != (size,):
            raise ValueError(
                f"{source}: {name} is {tuple(maps[name].shape)}, but config.json asks for ({size},)"
            )
    mask = None if mask is None else mask.bool()
    return checked(StoredMap(maps["d2t"], mask, shape.vocab_size), source)
