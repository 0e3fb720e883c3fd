"""N-gram drafter: copy what followed the last tokens where they stood before.

Source: prompt lookup decoding, Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding;
the tree of continuations is a best-first search over all matches.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drafters.base import ROOT, Context, Draft, TargetInfo

# A match one token longer outweighs any number of shorter ones that we look at.
WEIGHT_PER_TOKEN = 64.0
# Each further token of a match is that likely to hold too; it lets a branch end and another begin.
HOLDS = 0.8
# Most recent earlier places looked at for each length of match.
PLACES = 8


@dataclass(frozen=True)
class Ngram:
    """Settings of the n-gram drafter.

    Attributes:
        num_draft_tokens: Most draft tokens in a step.
        max_match: Longest suffix that is looked up.
        min_match: Shortest suffix that counts as a match.
        breadth: Most continuations kept after any one token; 1 makes a chain.
    """

    name: str = "ngram"
    num_draft_tokens: int = 3
    max_match: int = 4
    min_match: int = 1
    breadth: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("num_draft_tokens", "min_match", "breadth"):
            if getattr(self, name) < 1:
                raise ValueError(f"drafter.{name}={getattr(self, name)}: must be 1 or more")
        if self.max_match < self.min_match:
            raise ValueError(
                f"drafter.max_match={self.max_match} is below drafter.min_match={self.min_match}"
            )

    @property
    def copies_text(self) -> bool:
        """Return true: drafts are earlier tokens."""
        return True

    def capture_layers(self, num_layers: int) -> tuple[int, ...]:
        """Return no layers: only tokens are read."""
        return ()

    def start(self, target: TargetInfo) -> NgramProposer:
        """Return a proposer; any target fits."""
        return NgramProposer(self)

    def sglang_arguments(self) -> dict[str, str | int | float]:
        """Return SGLang's own n-gram drafter."""
        return {
            "speculative-algorithm": "NGRAM",
            "speculative-ngram-max-bfs-breadth": self.breadth,
        }


class Branch(NamedTuple):
    """A node of the tree that may still grow.

    Attributes:
        share: Share of the weight of all matches that runs through it, negated for the heap.
        order: Tie-break: earlier found first.
        node: Index of its draft token, `ROOT` for the root.
        path: Draft tokens from the root down to it.
        places: Position of the next token in each earlier occurrence, with its weight.
    """

    share: float
    order: int
    node: int
    path: tuple[int, ...]
    places: tuple[tuple[int, float], ...]


@dataclass
class NgramProposer:
    """An index of every n-gram of the request so far, grown as tokens come."""

    settings: Ngram
    index: dict[tuple[int, ...], list[int]] = field(default_factory=lambda: defaultdict(list))
    indexed: int = 0

    def begin(self, context: Context) -> None:
        """Forget the last request and index the prompt."""
        self.close()
        self._learn(context.tokens)

    def close(self) -> None:
        """Forget all."""
        self.index.clear()
        self.indexed = 0

    def propose(self, context: Context) -> Draft:
        """Return the best tree of continuations of the longest matching suffixes."""
        tokens = context.tokens
        self._learn(tokens)
        places = self._matches(tokens)
        drafts: list[int] = []
        parents: list[int] = []
        heap = [Branch(-1.0, 0, ROOT, (), places)] if places else []
        while heap and len(drafts) < self.settings.num_draft_tokens:
            branch = heapq.heappop(heap)
            if branch.path:
                drafts.append(branch.path[-1])
                parents.append(branch.node)
                branch = branch._replace(node=len(drafts) - 1)
            for child in self._children(tokens, branch):
                heapq.heappush(heap, child)
        return Draft(tuple(drafts), tuple(parents))

    def _learn(self, tokens: Sequence[int]) -> None:
        """Index the n-grams that end before the last token, each with where it continues."""
        for end in range(max(self.indexed, 1), len(tokens)):
            for size in range(self.settings.min_match, min(self.settings.max_match, end) + 1):
                self.index[tuple(tokens[end - size : end])].append(end)
        self.indexed = len(tokens)

    def _matches(self, tokens: Sequence[int]) -> tuple[tuple[int, float], ...]:
        """Return where the suffixes of `tokens` continued before, longest and latest first."""
        found: dict[int, float] = {}
        for size in range(
            min(self.settings.max_match, len(tokens)), self.settings.min_match - 1, -1
        ):
            places = self.index.get(tuple(tokens[len(tokens) - size :]), [])[-PLACES:]
            for age, place in enumerate(reversed(places)):
                # The latest wins a tie; together the older ones can outvote it.
                found.setdefault(place, WEIGHT_PER_TOKEN**size * (1.5 if age == 0 else 1.0))
        return tuple(found.items())

    def _children(self, tokens: Sequence[int], branch: Branch) -> list[Branch]:
        """Return the heaviest continuations of a branch."""
        groups: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for place, weight in branch.places:
            # Past the end of the text, a match goes on into its own draft: a period repeats.
            past = place - len(tokens)
            token = tokens[place] if past < 0 else branch.path[past]
            groups[token].append((place + 1, weight))
        whole = sum(weight for _, weight in branch.places)
        shares = {token: sum(w for _, w in group) / whole for token, group in groups.items()}
        ranked = sorted(groups, key=lambda token: -shares[token])[: self.settings.breadth]
        return [
            Branch(
                branch.share * shares[token] * HOLDS,
                branch.order * self.settings.breadth + rank + 1,
                branch.node,
                (*branch.path, token),
                tuple(groups[token]),
            )
            for rank, token in enumerate(ranked)
        ]
