"""Acceptance rules: which draft tokens stay, and which token the target adds. Pure functions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from drafters.base import ROOT, Draft


class Accepted(NamedTuple):
    """What one verify step commits.

    Attributes:
        path: Indices of the accepted draft tokens, root to leaf.
        bonus: The token that the target adds after the last of them.
    """

    path: tuple[int, ...]
    bonus: int


def greedy(draft: Draft, best: Tensor) -> Accepted:
    """Keep the path on which every draft token is the target's own first choice.

    Args:
        draft: K draft tokens.
        best: [K + 1] int64, the target's first choice after the root and each draft token.
    """
    choices: list[int] = best.tolist()
    edges = zip(draft.parents, draft.tokens, strict=True)
    chosen = {edge: child for child, edge in enumerate(edges)}
    path: list[int] = []
    node = ROOT
    while (child := chosen.get((node, choices[node + 1]))) is not None:
        path.append(child)
        node = child
    return Accepted(tuple(path), choices[node + 1])


def rejection(draft: Draft, target_probs: Tensor, generator: torch.Generator) -> Accepted:
    """Keep draft tokens so that the output is distributed as the target's own.

    Sources: Leviathan et al. 2023, Algorithm 1, https://arxiv.org/abs/2211.17192, for a chain;
    Miao et al. 2023, Algorithm 2, https://arxiv.org/abs/2305.09781, for the siblings of a tree,
    which are tried in turn against what the earlier ones left.

    Args:
        draft: K draft tokens, each drawn from its row of `draft.probs` independently of its
            siblings, or chosen outright where that is None (siblings then differ).
        target_probs: [K + 1, V] float32, rows sum to 1; after the root and each draft token.
        generator: The only source of randomness.
    """
    path: list[int] = []
    node = ROOT
    while True:
        left = target_probs[node + 1]
        accepted = None
        for child in (i for i, parent in enumerate(draft.parents) if parent == node):
            if _keep(draft, child, left, generator):
                accepted = child
                break
            left = _residual(draft, child, left)
        if accepted is None:
            return Accepted(tuple(path), int(torch.multinomial(left, 1, generator=generator)))
        path.append(accepted)
        node = accepted


def _keep(draft: Draft, child: int, left: Tensor, generator: torch.Generator) -> bool:
    """Accept a draft token with probability min(1, p / q)."""
    token = draft.tokens[child]
    drawn_with = 1.0 if draft.probs is None else float(draft.probs[child, token])
    return float(torch.rand((), generator=generator)) * drawn_with < float(left[token])


def _residual(draft: Draft, child: int, left: Tensor) -> Tensor:
    """Return what a rejected draft token leaves of the target's distribution, scaled to 1."""
    if draft.probs is None:
        rest = left.clone()
        rest[draft.tokens[child]] = 0
    else:
        rest = (left - draft.probs[child]).clamp(min=0)
    return rest / rest.sum()
