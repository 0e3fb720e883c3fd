"""Read a draft vocabulary from a head's folder or a safetensors file, and refuse a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from drafters.eagle3.compact import stored_tensors
from drafters.eagle3.config import head_config, vocab_size
from drafters.json_object import json_object
from drafters.vocab.maps import Encoding, VocabMap, encoding_of, reading

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)
FIXES = {
    Encoding.ABSOLUTE: (
        "holds token ids, engines read it as offsets: store d2t - arange(len(d2t))"
    ),
    Encoding.ARANGE: (
        "is 0, 1, 2, …, which engines read as token 2i for slot i: store token id minus slot"
    ),
    Encoding.BROKEN: "gives tokens out of range, or one token twice, in either reading",
}


class StoredMap(NamedTuple):
    """A map as a file holds it, not yet checked.

    Attributes:
        d2t: [D] integers.
        t2d: [V] bool, or None.
        vocab_size: V, from the mask or the head's configuration.
    """

    d2t: Tensor
    t2d: Tensor | None
    vocab_size: int

    @property
    def encoding(self) -> Encoding:
        """How the numbers are meant."""
        return encoding_of(self.d2t, self.vocab_size, self.t2d)


def checked(stored: StoredMap, source: str) -> VocabMap:
    """Return the map, if it is stored as offsets that agree with the mask.

    Raises:
        ValueError: It is not; the text names tensor, rule and fix.
    """
    ids = reading(stored.d2t, Encoding.OFFSET)
    encoding = stored.encoding
    alone = encoding_of(stored.d2t, stored.vocab_size)
    if encoding is Encoding.BROKEN and stored.t2d is not None and alone is Encoding.OFFSET:
        raise ValueError(
            f"{source}: t2d marks {int(stored.t2d.sum())} tokens that are not the"
            f" {len(ids)} of d2t; store t2d[arange(D) + d2t] = True, all else False"
        )
    if encoding in FIXES:
        raise ValueError(f"{source}: d2t {FIXES[encoding]}")
    return VocabMap(ids, stored.vocab_size)


def stored_map(
    d2t: Tensor, t2d: Tensor | None, source: str, draft_size: int | None, size: int | None
) -> StoredMap:
    """Return a map whose tensors can be one; what their numbers mean is not yet checked.

    Args:
        d2t: As stored.
        t2d: As stored, if it is.
        source: The file, for messages.
        draft_size: D, where a configuration says so.
        size: V, where a configuration says so; else the mask's length.

    Raises:
        ValueError: A type that cannot hold the numbers, another shape, or no vocabulary's size.
    """
    if d2t.dtype not in _INTEGERS:
        raise ValueError(
            f"{source}: d2t is {d2t.dtype}, which cannot hold a vocabulary's numbers: a cast of the"
            " whole state rounds them; take d2t from the head before the cast, as int64"
        )
    if t2d is not None and (t2d.dtype not in (torch.bool, *_INTEGERS) or bool((t2d > 1).any())):
        raise ValueError(f"{source}: t2d is {t2d.dtype}, a mask of bools is needed")
    if size is None and t2d is None:
        raise ValueError(
            f"{source}: neither t2d nor a config.json says how large the vocabulary is"
        )
    for name, tensor, wanted in (("d2t", d2t, draft_size), ("t2d", t2d, size)):
        if tensor is not None and (tensor.dim() != 1 or wanted not in (None, len(tensor))):
            asked = "one row is needed" if wanted is None else f"config.json asks for ({wanted},)"
            raise ValueError(f"{source}: {name} is {tuple(tensor.shape)}, but {asked}")
    whole = len(t2d) if t2d is not None else size
    assert whole is not None
    return StoredMap(d2t, None if t2d is None else t2d.bool(), whole)


def read_stored(source: Path) -> StoredMap:
    """Read `d2t` and `t2d` from a head's folder or from one safetensors file.

    Raises:
        ValueError: There is no such file, no `d2t` in it, no way to know the vocabulary's size, or
            as `stored_map`; of a folder, its configuration is no head's.
    """
    if not source.exists():
        raise ValueError(f"{source}: no head's folder and no safetensors file")
    maps = stored_tensors(source, ("d2t", "t2d").__contains__)
    if "d2t" not in maps:
        raise ValueError(f"{source}: tensor d2t is missing, so it holds no draft vocabulary")
    path = (source if source.is_dir() else source.parent) / "config.json"
    draft_size = size = None
    if path.is_file() and source.is_dir():
        shape = head_config(source).shape
        draft_size, size = shape.draft_vocab_size, shape.vocab_size
    elif path.is_file() and "t2d" not in maps:
        size = vocab_size(json_object(path), str(path))
    return stored_map(maps["d2t"], maps.get("t2d"), str(source), draft_size, size)


def read_map(source: Path) -> VocabMap:
    """Read a map that engines read right.

    Raises:
        ValueError: As `read_stored`, or as `checked`.
    """
    return checked(read_stored(source), str(source))
