"""Ways to damage what a sound file or command holds, as hypothesis strategies that shrink."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

from hypothesis import strategies as st

REMOVED = object()
LONG = "x" * 6000
DEEP: Any = []
for _ in range(150):
    DEEP = [DEEP]
HOSTILE = (
    *(REMOVED, None, True, False, 0, -1, 1, 2, 3, 7, 10**9, 2**63, 10**30, 10**400),
    *(0.0, 0.5, -0.0, 1e-300, 1e308, math.inf, -math.inf, math.nan),
    *("", " ", "x", "1", "nan", "../x", "/etc/passwd", "a/b", "~", ".", "..", "\x00", "\ud800"),
    *("a\nb", "\x1b[31mred", LONG, "${oc.env:HOME}", "{0.__class__}", "é", "default"),
    *([], {}, [None], [[]], [1], [1, 2, 3], ["x"], [{}], {"a": 1}, {"x": {"y": []}}, DEEP),
)
JUNK = st.one_of(
    st.sampled_from(HOSTILE),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=5,
    ),
)
_EDITS = st.lists(st.tuples(st.integers(0, 5000), JUNK), min_size=1, max_size=3)


def _places(value: Any, depth: int = 9) -> list[tuple[Any, Any]]:
    """Return the container and key of every value inside a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, inner in pairs:
        found.append((value, key))
        if isinstance(inner, (dict, list)) and depth:
            found += _places(inner, depth - 1)
    return found


def edited(sound: Any, edits: list[tuple[int, Any]]) -> Any:
    """Return a copy of plain data in which some values are others, or gone."""
    value = copy.deepcopy(sound)
    for number, junk in edits:
        places = _places(value)
        if not places:
            break
        container, key = places[number % len(places)]
        if junk is REMOVED:
            del container[key]
        else:
            container[key] = copy.deepcopy(junk)
    return value


def plain(sound: Any) -> st.SearchStrategy[Any]:
    """Damage plain data: one to three values are others, or gone."""
    return _EDITS.map(lambda edits: edited(sound, edits))


def text(sound: Any) -> st.SearchStrategy[bytes]:
    """Damage a JSON file: in its values, in its bytes, or altogether."""
    whole = json.dumps(sound).encode()
    return st.one_of(
        plain(sound).map(lambda value: json.dumps(value).encode()),
        plain(sound).map(lambda value: json.dumps(value).encode()),
        blob(whole),
        JUNK.filter(lambda value: value is not REMOVED).map(lambda v: json.dumps(v).encode()),
        st.sampled_from(
            [b"", b"[" * 100_000, b'{"a":' * 5000, b"9" * 5000, b"\xff\xfe\x00", b'{"a":1,"a":2}']
        ),
    )


def blob(whole: bytes, head: int = 0) -> st.SearchStrategy[bytes]:
    """Damage bytes: cut, overwritten or with some put in between.

    Args:
        whole: The sound file.
        head: Bytes at its beginning that most damage falls into; 0 is all of it.
    """
    place = st.integers(0, len(whole)) | st.integers(0, head or len(whole))
    piece = st.one_of(
        st.binary(max_size=9),
        st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"\x7f" + b"\xff" * 7, b"\xff" * 4, b"\n"]),
    )

    def damaged(edits: list[tuple[int, int, bytes]], cut: int | None) -> bytes:
        out = whole
        for start, width, new in edits:
            out = out[:start] + new + out[start + width :]
        return out if cut is None else out[:cut]

    edits = st.lists(st.tuples(place, st.sampled_from([0, 1, 4, 8]), piece), max_size=3)
    return st.builds(damaged, edits, st.none() | place)
