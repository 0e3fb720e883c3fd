"""What a head starts from: nothing, or another head whose draft vocabulary is kept or moved."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drafters.eagle3.checkpoint import Head, check_fits
from drafters.eagle3.shape import HeadShape, capture_layers, tensor_shapes
from drafters.eagle3.train.target import Target
from drafters.vocab.maps import VocabMap, by_frequency
from drafters.vocab.remap import overwrite, remap

MAPS = ("agree", "keep", "remap", "overwrite")
_SPREAD = 0.02  # standard deviation of new matrices


@dataclass(frozen=True)
class NewHead:
    """The shape of a head that is trained from nothing; the rest is the target's.

    Attributes:
        draft_vocab_size: D.
        intermediate_size: Of the feed-forward block; 0 takes the target's.
        num_heads: Query heads; 0 takes the target's, and its key-value heads.
    """

    draft_vocab_size: int
    intermediate_size: int = 0
    num_heads: int = 0


def fresh(new: NewHead, target: Target, counts: Tensor, scale: Tensor, seed: int) -> Head:
    """Return an untrained head.

    Its output rows are the target's own, scaled down: a target's row already tells its token from
    others, but at its full size the first loss would be several times larger.

    Args:
        new: What is chosen.
        target: The target.
        counts: [V], how often the target emits each token.
        scale: [3 * H], the usual size of the features' channels.
        seed: Of the draws.
    """
    vocab = by_frequency(counts, new.draft_vocab_size)
    shape = _shape(new, target)
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.ones(size)
        if len(size) == 1
        else torch.randn(size, generator=generator) * _SPREAD
        for name, size in tensor_shapes(shape).items()
    }
    rows = target.head[vocab.ids.to(target.device)].float().cpu()
    tensors["lm_head.weight"] = rows * (_SPREAD / rows.std())
    # Features whose channels are scaled to about 1 give states of about 1.
    tensors["fc.weight"] *= len(scale) ** -0.5 / _SPREAD / scale
    ids = tuple(layer - 1 for layer in capture_layers((), target.shape.num_layers))
    return Head(shape, tensors, vocab, ids)


def warm(head: Head, target: Target, counts: Tensor, choice: str, draft_vocab_size: int) -> Head:
    """Return a head to go on with, its draft vocabulary dealt with as chosen.

    Args:
        head: The head to start from.
        target: The target.
        counts: [V], how often the target emits each token in the data.
        choice: `agree`: the head's map must be the data's. `keep`: the head's map. `remap`: the
            data's, with the rows moved. `overwrite`: the data's, with the rows left where they
            were, which makes every moved slot say another token: the fault, reproduced.
        draft_vocab_size: Of the data's map.

    Raises:
        ValueError: The head is another target's, or the maps disagree and nothing was chosen.
    """
    check_fits(head.shape, target.shape, "start")
    if choice not in MAPS:
        raise ValueError(f"map={choice}: one of {', '.join(MAPS)}")
    if choice == "keep":
        return head
    vocab = by_frequency(counts, draft_vocab_size)
    if choice == "agree":
        if not vocab.same_as(head.vocab):
            raise ValueError(f"map=agree: {_difference(head.vocab, vocab)}")
        return head
    return remap(head, vocab)[0] if choice == "remap" else overwrite(head, vocab)


def _difference(ours: VocabMap, data: VocabMap) -> str:
    common = min(len(ours.ids), len(data.ids))
    same = int((ours.ids[:common] == data.ids[:common]).sum())
    return (
        f"the head's draft vocabulary and the data's {len(data.ids)} most frequent tokens agree in"
        f" {same} of {len(ours.ids)} slots; choose map=keep (the head's map) or map=remap (the"
        " data's, the head's rows moved to it)"
    )


def _shape(new: NewHead, target: Target) -> HeadShape:
    shape = target.shape
    return HeadShape(
        hidden_size=shape.hidden_size,
        intermediate_size=new.intermediate_size or shape.intermediate_size,
        num_heads=new.num_heads or shape.num_heads,
        num_kv_heads=new.num_heads or shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        draft_vocab_size=new.draft_vocab_size,
        rope_theta=shape.rope_theta,
        rms_norm_eps=shape.rms_norm_eps,
        max_positions=shape.max_positions,
    )
