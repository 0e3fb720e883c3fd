"""A head's folder in the published format: checked before anything is computed with it.

SGLang skips tensors whose names it does not know and reads any `d2t` as offsets, so that a wrong
folder serves with low acceptance instead of failing. Here each of these is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from drafters.eagle3.compact import COMPACT, WEIGHTS, stored_tensors, widened, write_compact
from drafters.eagle3.config import head_config, write_config
from drafters.eagle3.known_settings import LAYER_IDS
from drafters.eagle3.shape import HeadShape, tensor_shapes
from drafters.vocab.load import checked, read_stored, stored_map
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
        stated: The configuration that it was read with; empty for a new head.
    """

    shape: HeadShape
    tensors: dict[str, Tensor]
    vocab: VocabMap
    capture_ids: tuple[int, ...] = ()
    stated: Mapping[str, Any] = field(default_factory=dict)


def load_head(folder: Path) -> Head:
    """Read a head's folder.

    Raises:
        ValueError: A file is missing or damaged, a tensor is missing, unknown or of another shape
            or type, or the draft vocabulary is not sound; the text names tensor, rule and fix.
    """
    config, place = head_config(folder), folder / "config.json"
    if config.sglang_only:
        raise ValueError(
            f"{place}: {config.sglang_only} is not supported by the torch engine: use engine=sglang"
            " for this head"
        )
    tensors = stored_tensors(folder)
    source = str(folder / WEIGHTS)
    if (folder / COMPACT).is_file():
        source = str(folder / COMPACT)
        try:
            tensors = widened(tensors)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
    maps = {name: tensors.pop(name) for name in _MAPS if name in tensors}
    tensors.pop(_EMBEDDING, None)
    _check(tensors, config.shape, source)
    vocab = _vocab(maps, config.shape, source)
    return Head(config.shape, tensors, vocab, config.layer_ids, config.stated)


def check_served(folder: Path) -> None:
    """Refuse a head that SGLang would misread without a word.

    Raises:
        ValueError: As `load_head`, but for what SGLang runs and the torch engine does not; or
            SGLang looks elsewhere for the layers' ids.
    """
    config = head_config(folder)
    if not config.sglang_only:
        load_head(folder)
    elif "d2t" in stored_tensors(folder, _MAPS.__contains__):
        checked(read_stored(folder), str(folder))
    if config.hides_layers:
        raise ValueError(
            f"{folder / 'config.json'}: SGLang reads {LAYER_IDS} within eagle_config alone and"
            " would guess the layers: write them there too, as `python -m drafters.vocab remap"
            " HEAD HEAD OUT` does"
        )


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
    stored = str(dtype).removeprefix("torch.")
    config = write_config(head.shape, head.capture_ids, stored, head.stated)
    partial = folder / "config.json.partial"
    partial.write_text(json.dumps(config, indent=2) + "\n")
    partial.replace(folder / "config.json")


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
    size = (shape.draft_vocab_size, shape.vocab_size)
    return checked(stored_map(maps["d2t"], maps.get("t2d"), source, *size), source)
