"""Fold an error into one line for a reason or a refusal, and hide passwords in addresses.

Libraries write anything from a page to nothing at all; a cell's reason must fit a table.
"""

from __future__ import annotations

import re


def one_line(error: BaseException | None) -> str:
    """Return an error's type and all that it says."""
    text = folded(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def folded(error: object) -> str:
    """Return all that an error, or its text, says."""
    return " ".join(str(error).split())


def first_line(error: BaseException) -> str:
    """Return an error's first line, which says the most; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def masked(text: str) -> str:
    """Return a text with the user and password of every address in it hidden."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)
