"""Move a head to another draft vocabulary: its rows follow their tokens to the new slots."""

from __future__ import annotations

from dataclasses import dataclass, replace

from drafters.eagle3.checkpoint import Head
from drafters.vocab.maps import VocabMap


@dataclass(frozen=True)
class Moved:
    """What a move kept.

    Attributes:
        kept: Slots of the new map whose token the old one had.
        new: Slots whose token is new to the head; they have to be trained.
        dropped: Tokens of the old map that have no slot any more.
    """

    kept: int
    new: int
    dropped: int


def remap(head: Head, vocab: VocabMap) -> tuple[Head, Moved]:
    """Return the head with its output rows in the slots of another map, and what was kept.

    A token that the head did not know starts as the average row: its score is the average score,
    so that it is never proposed before it has been trained.

    Raises:
        ValueError: The map is for a target of another vocabulary.
    """
    if vocab.vocab_size != head.shape.vocab_size:
        raise ValueError(
            f"map of a target with {vocab.vocab_size} tokens: the head's target has"
            f" {head.shape.vocab_size}"
        )
    source = head.vocab.slots()[vocab.ids]
    known = source >= 0
    rows = head.tensors["lm_head.weight"]
    moved = rows[source.clamp(min=0)].clone()
    moved[~known] = rows.float().mean(dim=0).to(rows.dtype)
    kept = int(known.sum())
    shape = replace(head.shape, draft_vocab_size=len(vocab.ids))
    tensors = {**head.tensors, "lm_head.weight": moved}
    report = Moved(kept, len(vocab.ids) - kept, len(head.vocab.ids) - kept)
    return replace(head, shape=shape, tensors=tensors, vocab=vocab), report


def overwrite(head: Head, vocab: VocabMap) -> Head:
    """Return the head with another map and its rows where they were: every slot changes meaning.

    This is what a trainer does that builds a new map from its data and loads old rows into it.
    It is here to reproduce that fault, not to be used.

    Raises:
        ValueError: The maps differ in size.
    """
    if len(vocab.ids) != len(head.vocab.ids):
        raise ValueError(
            f"map of {len(vocab.ids)} slots on a head of {len(head.vocab.ids)}: rows can stay"
            " where they are only if the sizes agree; use remap"
        )
    return replace(head, vocab=vocab)
