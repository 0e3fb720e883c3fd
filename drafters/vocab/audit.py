"""Compare two draft vocabularies: do they hold the same tokens, and in the same slots?

A head that is read with another head's map says the wrong token wherever a slot's tokens differ,
however many tokens the two share.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drafters.vocab.load import StoredMap
from drafters.vocab.maps import Encoding, count_outside, count_repeated, reading


@dataclass(frozen=True)
class MapFacts:
    """One map by itself.

    Attributes:
        size: Slots.
        encoding: How its `d2t` is meant.
        outside: Slots whose token the target does not have, as engines read the map.
        repeated: Slots that repeat another slot's token, as engines read the map.
        coverage: Share of the target's output, by count, whose token has a slot.
        right_slots: Slots whose token engines read as it is meant; None where nobody can say what
            is meant.
        right: Share of the target's output whose token is in such a slot.
    """

    size: int
    encoding: Encoding
    outside: int
    repeated: int
    coverage: float
    right_slots: int | None
    right: float

    @property
    def wrong(self) -> bool:
        """Whether engines misread the map."""
        return self.encoding is not Encoding.OFFSET


@dataclass(frozen=True)
class Audit:
    """Two maps compared; A is the map that a head was trained with, B the one it is read with.

    Attributes:
        a: Map A by itself.
        b: Map B by itself.
        same_slot: Slots whose token in A is the one that engines read from B.
        shared: Tokens that both hold, in whatever slot.
        coverage_shared: Share of the target's output whose token both hold: the cap on accept rate
            once the rows have been moved from A to B.
        coverage_same_slot: Share of the target's output whose token is in such a slot: the cap on
            the accept rate of A's head read with map B.
        weighted: Whether shares are by counts of the target's output; else every token counts once.
    """

    a: MapFacts
    b: MapFacts
    same_slot: int
    shared: int
    coverage_shared: float
    coverage_same_slot: float
    weighted: bool


def audit(a: StoredMap, b: StoredMap, counts: Tensor | None = None) -> Audit:
    """Compare two maps.

    Args:
        a: The map that a head was trained with.
        b: The map that it is, or will be, read with.
        counts: [V], how often the target emits each token; None counts every token once.

    Raises:
        ValueError: The maps belong to vocabularies of different sizes.
    """
    if a.vocab_size != b.vocab_size:
        raise ValueError(
            f"the maps are for targets of {a.vocab_size} and {b.vocab_size} tokens; only maps of"
            " one target can be compared"
        )
    weights = torch.ones(a.vocab_size) if counts is None else counts.double()
    share = weights / weights.sum()
    ids_a, ids_b = _meant(a), _meant(b)
    same = _same(ids_a, reading(b.d2t, Encoding.OFFSET))
    shared = ids_a[torch.isin(ids_a, ids_b)]
    return Audit(
        a=_facts(a, share),
        b=_facts(b, share),
        same_slot=len(same),
        shared=len(set(shared.tolist())),
        coverage_shared=_covered(shared, share),
        coverage_same_slot=_covered(same, share),
        weighted=counts is not None,
    )


def accept_length_cap(coverage: float, num_draft_tokens: int) -> float:
    """Return the accept length that a coverage caps, if positions were independent.

    A draft token can be accepted only where the target's own choice has a slot.
    """
    return sum(coverage**depth for depth in range(num_draft_tokens + 1))


def _meant(stored: StoredMap) -> Tensor:
    """Return the token ids that a map means, whether or not engines read it so; empty for none.

    A mask tells the tokens of a map whose numbers are no map; their slots are in ascending order,
    as every trainer makes them.
    """
    if stored.encoding in (Encoding.OFFSET, Encoding.ABSOLUTE):
        return reading(stored.d2t, stored.encoding)
    if stored.t2d is not None and int(stored.t2d.sum()) == len(stored.d2t):
        return stored.t2d.nonzero().flatten()
    arange = stored.encoding is Encoding.ARANGE and len(stored.d2t) <= stored.vocab_size
    return reading(stored.d2t, Encoding.ABSOLUTE) if arange else stored.d2t.new_empty(0)


def _same(meant: Tensor, read: Tensor) -> Tensor:
    """Return the tokens that stand in the same slot of both."""
    common = min(len(meant), len(read))
    return meant[:common][meant[:common] == read[:common]]


def _facts(stored: StoredMap, share: Tensor) -> MapFacts:
    engine_ids, meant = reading(stored.d2t, Encoding.OFFSET), _meant(stored)
    right = _same(meant, engine_ids)
    return MapFacts(
        size=len(stored.d2t),
        encoding=stored.encoding,
        outside=count_outside(engine_ids, stored.vocab_size),
        repeated=count_repeated(engine_ids),
        coverage=_covered(meant, share),
        right_slots=len(right) if len(meant) else None,
        right=_covered(right, share),
    )


def _covered(ids: Tensor, share: Tensor) -> float:
    """Return the share of tokens that are among `ids`; ids out of range cover nothing."""
    covered = torch.zeros_like(share)
    covered[ids[(ids >= 0) & (ids < len(share))]] = 1
    return float((share * covered).sum())
