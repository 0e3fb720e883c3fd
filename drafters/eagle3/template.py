"""A chat template as two runs of tokens: what stands before a user's text, and what after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drafters.eagle3.train.target import Tokenizer

_MARK = "\N{OBJECT REPLACEMENT CHARACTER}mark\N{OBJECT REPLACEMENT CHARACTER}"


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
