"""Training prompts: from a data set or the target itself, apart from all that is measured."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from drafters.eagle3.data.generate import Writing, write
from drafters.eagle3.train.target import Target, Tokenizer

RUN = 10  # tokens in a row that no two texts share by chance
SEEDS_APART = 1_000_003  # parts of one seed, before another seed begins
_MARK = "\N{OBJECT REPLACEMENT CHARACTER}mark\N{OBJECT REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Maker:
    """What a source of prompts may use.

    Attributes:
        target: The target, ready to write.
        tokenizer: Its tokenizer.
        template: Its chat template.
        settings: The target's settings, for sources that load a data set for it.
        cache: The cache folder.
    """

    target: Target
    tokenizer: Tokenizer
    template: Template
    settings: Any
    cache: Path


class PromptSource(Protocol):
    """A source of prompts; a frozen dataclass."""

    def prompts(self, maker: Maker, part: int, count: int) -> Sequence[tuple[int, ...]]:
        """Return about `count` prompts of a numbered part; the same part is always the same.

        Returns nothing when the source is exhausted.
        """


class Workload(Hashable, Protocol):
    """What loads prompts from a data set or a file, with the target's template applied."""

    def load(self, target: Any, cache: Path) -> Sequence[Any]:
        """Return prompts; each has `tokens`."""


@dataclass(frozen=True)
class FromWorkload:
    """Prompts of a data set.

    Attributes:
        workload: The data set, such as `pipeline.workload.sources.Hub`.
    """

    workload: Workload

    def prompts(self, maker: Maker, part: int, count: int) -> Sequence[tuple[int, ...]]:
        """Return a slice of the data set."""
        every = _loaded(self.workload, maker.settings, maker.cache)
        return every[part * count : (part + 1) * count]


@functools.lru_cache(maxsize=1)
def _loaded(workload: Workload, target: Any, cache: Path) -> list[tuple[int, ...]]:
    """Load a data set once, though it is asked for part by part."""
    return [tuple(prompt.tokens) for prompt in workload.load(target, cache)]


@dataclass(frozen=True)
class SelfPrompted:
    """Prompts that the target makes up: it continues the empty user turn of its own template.

    Source: Xu et al. 2024, Magpie, https://arxiv.org/abs/2406.08464. Openers steer it to kinds of
    requests that it rarely makes up by itself.

    Attributes:
        openers: Beginnings of the user's text, used in turn; "" leaves the start to the target.
        temperature: Of the user's turn; 1 is the target's own distribution.
        max_tokens: Longer prompts are dropped.
        batch: Sequences at once.
        seed: Of the draws.
    """

    openers: tuple[str, ...] = ("",)
    temperature: float = 1.0
    max_tokens: int = 160
    batch: int = 2048
    seed: int = 0

    def __post_init__(self) -> None:
        """Freeze what yaml gives."""
        object.__setattr__(self, "openers", tuple(self.openers))

    def prompts(self, maker: Maker, part: int, count: int) -> Sequence[tuple[int, ...]]:
        """Let the target write `count` user turns; those that do not end are dropped."""
        template, stops = maker.template, maker.tokenizer.stop_ids
        heads = [tuple(maker.tokenizer.encode(text)) for text in self.openers]
        starts = [heads[number % len(heads)] for number in range(count)]
        texts = write(
            maker.target,
            [(*template.before, *start) for start in starts],
            Writing(self.max_tokens, self.temperature, self.batch),
            stops,
            seed=self.seed * SEEDS_APART + part,
        )
        return [
            template.wrap((*start, *text[:-1]))
            for start, text in zip(starts, texts, strict=True)
            if text and text[-1] in stops and len(start) + len(text) > 1
        ]


@dataclass(frozen=True)
class Template:
    """A template of one user turn.

    Attributes:
        before: Token ids up to the user's text.
        after: Token ids from the user's text to the start of the answer.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Template:
        """Read the template off a rendered conversation.

        Raises:
            ValueError: The target has no template, or it changes the user's text.
        """
        text = tokenizer.render([{"role": "user", "content": _MARK}])
        before, mark, after = text.partition(_MARK)
        if not mark:
            raise ValueError("the target's chat template does not hold the user's text as it is")
        return cls(tuple(tokenizer.encode(before)), tuple(tokenizer.encode(after)))

    def wrap(self, text: Sequence[int]) -> tuple[int, ...]:
        """Return a prompt of a user's text."""
        return (*self.before, *text, *self.after)

    def unwrap(self, prompt: Sequence[int]) -> tuple[int, ...]:
        """Return what is a prompt's own: all but the template's ends, as far as they are there."""
        begin, end = 0, len(prompt)
        while begin < min(len(self.before), end) and prompt[begin] == self.before[begin]:
            begin += 1
        tail = 0
        while (
            tail < min(len(self.after), end - begin) and prompt[-1 - tail] == self.after[-1 - tail]
        ):
            tail += 1
        return tuple(prompt[begin : end - tail])


class Decontaminator:
    """Keeps training prompts apart: from each other, and from every prompt that is measured."""

    def __init__(self, template: Template, measured: Iterable[Sequence[int]]) -> None:
        """Remember the runs of tokens of the prompts that are measured.

        Args:
            template: Its tokens are shared by all prompts and count for nothing.
            measured: Token ids of each, template applied.
        """
        self._template = template
        self._seen: set[tuple[int, ...]] = set()
        self._runs: set[tuple[int, ...]] = set()
        for prompt in measured:
            self._runs.update(_runs(template.unwrap(prompt)))
        self.repeated = self.overlapping = 0

    def admit(self, prompt: Sequence[int]) -> bool:
        """Say whether a prompt may be trained on, and remember it if so; count why not."""
        text = self._template.unwrap(prompt)
        if text in self._seen:
            self.repeated += 1
            return False
        if not self._runs.isdisjoint(_runs(text)):
            self.overlapping += 1
            return False
        self._seen.add(text)
        return True


def _runs(text: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Return every run of `RUN` tokens; a shorter text is one run."""
    return {text[first : first + RUN] for first in range(max(len(text) - RUN, 0) + 1)}
