"""Read a draft vocabulary from a head's folder or a safetensors file, and refuse a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from drafters.eagle3.compact import weights_file
from drafters.json_object import json_object
from drafters.vocab.maps import Encoding, VocabMap, encoding_of, reading

_FIXES = {
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
    if encoding in _FIXES:
        raise ValueError(f"{source}: d2t {_FIXES[encoding]}")
    return VocabMap(ids, stored.vocab_size)


def read_stored(source: Path) -> StoredMap:
    """Read `d2t` and `t2d` from a head's folder or from one safetensors file.

    Raises:
        ValueError: There is no such file, no `d2t` in it, or no way to know the vocabulary's size.
    """
    path = weights_file(source) if source.is_dir() else source
    if not path.is_file():
        raise ValueError(f"{source}: no head's folder and no safetensors file")
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            d2t = file.get_tensor("d2t") if "d2t" in names else None
            t2d = file.get_tensor("t2d") if "t2d" in names else None
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}); copy it again") from None
    if d2t is None:
        raise ValueError(f"{path}: tensor d2t is missing, so the file holds no draft vocabulary")
    size = len(t2d) if t2d is not None else _vocab_size(path)
    return StoredMap(d2t, None if t2d is None else t2d.bool(), size)


def read_map(source: Path) -> VocabMap:
    """Read a map that engines read right.

    Raises:
        ValueError: As `read_stored`, or as `checked`.
    """
    return checked(read_stored(source), str(source))


def _vocab_size(path: Path) -> int:
    """Return the target's vocabulary size from the configuration beside a file."""
    config = path.parent / "config.json"
    size = json_object(config).get("vocab_size") if config.is_file() else None
    if not isinstance(size, int):
        raise ValueError(f"{path}: neither t2d nor a config.json says how large the vocabulary is")
    return size
