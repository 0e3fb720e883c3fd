"""Public sources that several tables name: numbered in the tables, listed once below them."""

from __future__ import annotations

import re


class Sources:
    """The sources that were cited so far."""

    def __init__(self) -> None:
        """Begin without any."""
        self._numbers: dict[str, int] = {}

    def cite(self, source: str) -> str:
        """Return what stands behind a basis: ` [1]` for a public source, else the text itself."""
        if "https://" not in source:
            return f": {source}"
        return f" [{self._numbers.setdefault(source, len(self._numbers) + 1)}]"

    def listed(self) -> str:
        """Return the sources as a list with their addresses folded into links, "" for none."""
        return "\n".join(f"- [{n}] {_linked(text)}" for text, n in self._numbers.items())


def _linked(text: str) -> str:
    """Return a text with its addresses folded into links."""
    return re.sub(r"https://[^\s,;)]+", lambda found: f"[source]({found.group()})", text)
