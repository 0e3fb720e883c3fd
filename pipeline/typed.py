"""Numbers where numbers belong: a config's values against the fields of the class it builds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def check_types(setting: str, kind: type, values: dict[str, Any]) -> None:
    """Refuse a text where a class wants a number, and half a number where it counts.

    A class that compares its fields would otherwise fail with a text of Python's, and one that
    does not would fail in the middle of a sweep. Fields of other types are the class's own matter.

    Args:
        setting: The part of the config, such as `parallelism`.
        kind: The dataclass that is built.
        values: Its arguments by name.

    Raises:
        ValueError: Naming the setting and what it must be.
    """
    if not dataclasses.is_dataclass(kind):
        return
    for field in dataclasses.fields(kind):
        if field.name in values:
            _check(f"{setting}.{field.name}", field.type, values[field.name])


def _check(setting: str, annotation: Any, value: Any) -> None:
    """Refuse a value of one field."""
    wanted = set(_names(annotation))
    if not wanted or not wanted <= {*KINDS, "None"}:
        return
    if not any(_is(value, name) for name in wanted):
        last = sorted(wanted, key=lambda name: name == "None")
        said = " or ".join("null" if name == "None" else KINDS[name] for name in last)
        raise ValueError(f"{setting}={'null' if value is None else value}: must be {said}")


def _names(annotation: Any) -> Iterator[str]:
    """Yield the types that an annotation allows, which may be a text or a type."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    yield from (name.strip() for name in text.split("|"))


def _is(value: Any, name: str) -> bool:
    """Say whether a value is of a simple type; a whole number is a number, a truth value is not."""
    if name == "None":
        return value is None
    if isinstance(value, bool) or name == "bool":
        return isinstance(value, bool) and name == "bool"
    return isinstance(value, int) or (name == "float" and isinstance(value, float))
