"""What a draft vocabulary is, how a file stores it, and which stored forms are wrong.

A head scores D slots; slot i stands for one token of the target. Published heads store `d2t`, the
offset from slot to token id, and `t2d`, which token ids have a slot. Both are easily confused with
something else, and engines then draft the wrong tokens without a word: acceptance falls, nothing
fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

# D slots of the draft vocabulary, V tokens of the target


class Encoding(StrEnum):
    """How the numbers of a stored `d2t` are to be read."""

    OFFSET = "offset"  # token = slot + d2t[slot], as published
    ABSOLUTE = "absolute"  # token = d2t[slot]
    ARANGE = "arange"  # d2t[slot] = slot: the offset reading maps slot i to token 2i
    BROKEN = "broken"  # no reading gives D different tokens


@dataclass(frozen=True, eq=False)
class VocabMap:
    """A draft vocabulary.

    Attributes:
        ids: [D] int64, all different: the target's token of each slot.
        vocab_size: V.
    """

    ids: Tensor
    vocab_size: int

    def __post_init__(self) -> None:
        """Refuse ids that are out of range or given twice."""
        if outside := count_outside(self.ids, self.vocab_size):
            raise ValueError(
                f"draft vocabulary: {outside} of {len(self.ids)} token ids are not in the target's"
                f" vocabulary of {self.vocab_size}; is this a map for another target?"
            )
        if repeated := count_repeated(self.ids):
            raise ValueError(
                f"draft vocabulary: {repeated} of {len(self.ids)} slots repeat another slot's"
                " token; every slot needs a token of its own"
            )

    @property
    def d2t(self) -> Tensor:
        """The stored form, [D] int64: token id minus slot."""
        return self.ids - torch.arange(len(self.ids))

    @property
    def t2d(self) -> Tensor:
        """The stored mask, [V] bool: whether a token has a slot."""
        mask = torch.zeros(self.vocab_size, dtype=torch.bool)
        mask[self.ids] = True
        return mask

    def slots(self) -> Tensor:
        """Return each token's slot, [V] int64; -1 where it has none."""
        slots = torch.full((self.vocab_size,), -1)
        slots[self.ids] = torch.arange(len(self.ids))
        return slots

    def same_as(self, other: VocabMap) -> bool:
        """Whether every slot stands for the same token."""
        return self.vocab_size == other.vocab_size and torch.equal(self.ids, other.ids)


def count_outside(ids: Tensor, vocab_size: int) -> int:
    """Return how many ids the target does not have."""
    return int(((ids < 0) | (ids >= vocab_size)).sum())


def count_repeated(ids: Tensor) -> int:
    """Return how many slots repeat a token of another slot."""
    return len(ids) - len(set(ids.tolist()))


def reading(d2t: Tensor, encoding: Encoding) -> Tensor:
    """Return the token ids, [D] int64, that a stored `d2t` gives in one reading."""
    stored = d2t.long()
    return stored if encoding is Encoding.ABSOLUTE else stored + torch.arange(len(stored))


def encoding_of(d2t: Tensor, vocab_size: int, t2d: Tensor | None = None) -> Encoding:
    """Return how a stored `d2t` is meant.

    Both readings can give D different tokens. The mask decides then. Without one the numbers are
    ids: offsets that all differ would be a vocabulary without two neighbouring tokens, which no
    count of frequencies gives.

    Args:
        d2t: [D] integers as stored.
        vocab_size: V.
        t2d: [V] bool as stored, if it is.
    """
    if len(d2t) > 1 and torch.equal(d2t.long(), torch.arange(len(d2t))):
        return Encoding.ARANGE
    fits = [
        encoding
        for encoding in (Encoding.ABSOLUTE, Encoding.OFFSET)
        if _fits(reading(d2t, encoding), vocab_size, t2d)
    ]
    return fits[0] if fits else Encoding.BROKEN


def identity(vocab_size: int) -> VocabMap:
    """Return the map of a head that scores the target's whole vocabulary."""
    return VocabMap(torch.arange(vocab_size), vocab_size)


def by_frequency(counts: Tensor, size: int) -> VocabMap:
    """Return the `size` most frequent tokens in ascending order; the lower id wins a tie.

    Args:
        counts: [V], how often each token occurs.
        size: D.

    Raises:
        ValueError: The target has fewer tokens.
    """
    if not 0 < size <= len(counts):
        raise ValueError(
            f"draft_vocab_size={size}: must be 1 to {len(counts)}, the target's vocabulary"
        )
    order = torch.sort(counts, descending=True, stable=True).indices
    return VocabMap(order[:size].sort().values, len(counts))


def _fits(ids: Tensor, vocab_size: int, t2d: Tensor | None) -> bool:
    """Whether ids are different tokens of the target, and those of the mask if there is one."""
    if count_outside(ids, vocab_size) or count_repeated(ids):
        return False
    if t2d is None:
        return True
    return bool(t2d[ids].all()) and int(t2d.sum()) == len(ids)
