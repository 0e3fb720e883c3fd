"""Keep training prompts apart: from each other, and from every prompt that is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drafters.eagle3.data.prompts import Template

RUN = 10  # tokens in a row that no two texts share by chance


class Decontaminator:
    """Prompts seen so far, and those that may never be trained on."""

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
