"""An EAGLE-3 head at work on a request: read what was committed, then draft a chain or a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from drafters.base import ROOT, Context, Draft
from drafters.eagle3.runner import Runner, Scored
from drafters.vocab.maps import VocabMap


@dataclass(frozen=True)
class DraftTree:
    """The shape of a step's draft.

    Attributes:
        num_draft_tokens: Draft tokens of a step.
        breadth: Continuations kept after a token; 1 makes a chain.
        depth: Longest path.
    """

    num_draft_tokens: int
    breadth: int
    depth: int

    @property
    def is_chain(self) -> bool:
        """Whether each draft token follows the one before."""
        return self.breadth == 1


class Node(NamedTuple):
    """A candidate of a tree.

    Attributes:
        score: Logarithm of the probability of its path.
        token: Target token id.
        parent: The candidate it follows; `ROOT` for none.
        row: Row of its forward among the tree's rows; -1 while it has none.
    """

    score: float
    token: int
    parent: int
    row: int = -1


class Eagle3Proposer:
    """Drafts with one head; a request's rows live in the runner's cache."""

    def __init__(self, shape: DraftTree, runner: Runner, vocab: VocabMap) -> None:
        """Bind a runner; nothing has been read."""
        self._shape, self._runner = shape, runner
        self._ids, self._vocab = vocab.ids.tolist(), vocab
        self._read = 0

    def begin(self, context: Context) -> None:
        """Forget the last request's rows and read the prompt's, but for the last: it drafts."""
        features = context.features
        assert features is not None, "the engine captures the layers that the drafter asked for"
        self._read = len(features) - 1
        if self._read:
            self._runner.extend(list(context.tokens[1:-1]), features[:-1], 0)

    def close(self) -> None:
        """Hold nothing beyond memory."""

    def propose(self, context: Context) -> Draft:
        """Read the rows whose features came, and draft from the last of them."""
        features = context.features
        assert features is not None, "the engine captures the layers that the drafter asked for"
        count, start = len(features), self._read
        # A row's token is the successor of the token whose features it holds: the last is the root.
        tokens = list(context.tokens[len(context.tokens) - count :])
        self._read += count
        if self._shape.is_chain and context.temperature == 0:
            slots = self._runner.chain(tokens, features, start, self._shape.num_draft_tokens)
            return Draft.chain([self._ids[slot] for slot in slots])
        scored = self._runner.extend(tokens, features, start)
        if self._shape.is_chain:
            return self._sampled(scored, context)
        return self._tree(scored)

    def _sampled(self, scored: Scored, context: Context) -> Draft:
        """Draw a chain from the head's own distributions."""
        tokens: list[int] = []
        probs = torch.zeros(self._shape.num_draft_tokens, self._vocab.vocab_size)
        for place, row in enumerate(probs):
            if tokens:
                mask = torch.ones(1, place, dtype=torch.bool)
                scored = self._runner.step(tokens[-1:], scored.hidden, self._read, mask)
            drawn_from = (scored.logits[0] / context.temperature).softmax(dim=-1)
            row[self._vocab.ids] = drawn_from
            slot = int(torch.multinomial(drawn_from, 1, generator=context.sampler))
            tokens.append(self._ids[slot])
        return Draft.chain(tokens, probs)

    def _tree(self, scored: Scored) -> Draft:
        """Grow a tree level by level, and keep the most probable nodes.

        Source: Li et al. 2024, EAGLE-2, https://arxiv.org/abs/2406.16858: a level's best nodes are
        expanded, all candidates compete for the draft. A path's probability only falls with
        depth, so that a kept node's parent is kept.
        """
        shape = self._shape
        nodes: list[Node] = []
        open_nodes, mask = [ROOT], torch.zeros(0, 0, dtype=torch.bool)
        for level in range(shape.depth):
            new = self._children(scored.logits, nodes, open_nodes)
            best = sorted(range(len(new)), key=lambda i: -new[i].score)[: shape.breadth]
            rows = {place: len(mask) + number for number, place in enumerate(best)}
            first = len(nodes)
            nodes += [node._replace(row=rows.get(i, -1)) for i, node in enumerate(new)]
            if level + 1 == shape.depth:
                break
            parents = [open_nodes.index(nodes[first + place].parent) for place in best]
            open_nodes = [first + place for place in best]
            mask = _grown(mask, [nodes[node] for node in open_nodes], nodes)
            scored = self._runner.step(
                [nodes[node].token for node in open_nodes],
                scored.hidden[parents],
                self._read,
                mask[-len(best) :],
            )
        return _best(nodes, shape.num_draft_tokens)

    def _children(self, logits: Tensor, nodes: list[Node], parents: list[int]) -> list[Node]:
        """Return each parent's best continuations."""
        top = logits.log_softmax(dim=-1).topk(min(self._shape.breadth, logits.shape[-1]))
        return [
            Node((nodes[parent].score if parent != ROOT else 0.0) + score, self._ids[slot], parent)
            for parent, scores, slots in zip(
                parents, top.values.tolist(), top.indices.tolist(), strict=True
            )
            for score, slot in zip(scores, slots, strict=True)
        ]


def _grown(mask: Tensor, new: list[Node], nodes: list[Node]) -> Tensor:
    """Return which of the tree's rows each of them attends, [T, T], with rows of new nodes."""
    before = len(mask)
    grown = torch.eye(before + len(new), dtype=torch.bool)
    grown[:before, :before] = mask
    for node in new:
        if node.parent != ROOT:
            row = nodes[node.parent].row
            grown[node.row] |= grown[row]
    return grown


def _best(nodes: list[Node], count: int) -> Draft:
    """Return the tree of the `count` most probable nodes; parents come first."""
    kept = sorted(sorted(range(len(nodes)), key=lambda i: (-nodes[i].score, i))[:count])
    place = {node: number for number, node in enumerate(kept)}
    return Draft(
        tuple(nodes[node].token for node in kept),
        tuple(place.get(nodes[node].parent, ROOT) for node in kept),
    )
