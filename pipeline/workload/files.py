"""From a user's file to its rows: encodings, one object a line, arrays, and what is no JSON."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]

MAX_DEPTH = 100  # nothing that people write goes deeper; Python's own limit is a crash
_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)  # before UTF-16, whose mark they begin with
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PACKED = {
    b"\x1f\x8b": "gzip-compressed; unpack it first: gunzip",
    b"PK\x03\x04": "a zip archive; unpack it first: unzip",
    b"\x28\xb5\x2f\xfd": "zstd-compressed; unpack it first: unzstd",
    b"BZh": "bzip2-compressed; unpack it first: bunzip2",
    b"\xfd7zXZ": "xz-compressed; unpack it first: unxz",
    b"PAR1": "a Parquet file; use workload=hub with its folder, or write it as JSON lines",
}


def read_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield each row of a file with its place.

    Read as UTF-8, with or without its mark, or as UTF-16 or UTF-32 with theirs; one object or one
    list of messages a line, or one array of them over any number of lines.

    Raises:
        ValueError: The file or a line is none of these, naming what it is and the fix.
    """
    data = _decoded(path)
    lines = [(n, line) for n, line in enumerate(data.splitlines(), 1) if line.strip()]
    first = lines[0][1].strip() if lines else b""
    if first[:1] == b"[" and (len(lines) == 1 or not _is_json(first)):
        yield from _of_array(parse(data, path.name, _hint(data)), path.name)
        return
    if first[:1] == b"{" and len(lines) > 1 and not _is_json(first) and _is_json(data):
        yield f"{path.name}:{lines[0][0]}", _row(parse(data, path.name), path.name)
        return
    for number, line in lines:
        where = f"{path.name}:{number}"
        yield where, _row(parse(line, where, _hint(line)), where)


def parse(text: str | bytes, where: str, hint: str = "") -> Any:
    """Return the value of a JSON text.

    Args:
        text: The text, or its UTF-8 bytes.
        where: Its place, for messages.
        hint: What is probably wrong with it if it cannot be read.

    Raises:
        ValueError: It is no JSON, names a key twice, or is nested too deep.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unrepeated)
    except _Repeated as error:
        raise ValueError(f"{where}: {error}") from None
    except RecursionError:
        raise ValueError(f"{where}: {_DEEP}") from None
    except ValueError as error:
        raise ValueError(f"{where}: not JSON ({error}){hint}") from None
    check_depth(value, where)
    return value


def check_depth(value: Any, where: str) -> None:
    """Refuse a value that is nested too deep for whatever reads it next.

    Raises:
        ValueError: Naming the place.
    """
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for each in level
            if isinstance(each, (dict, list))
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise ValueError(f"{where}: {_DEEP}")


_DEEP = f"nested more than {MAX_DEPTH} levels deep: no conversation is; remove that field"


class _Repeated(ValueError):
    """A key that an object names twice."""


def _unrepeated(pairs: list[tuple[str, Any]]) -> Row:
    """Build an object; JSON's own rule, that the last of equal keys wins, loses a prompt."""
    out = dict(pairs)
    if len(out) < len(pairs):
        seen = set[str]()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Repeated(f'"{twice}" stands twice in one object; keep one of them')
    return out


def _decoded(path: Path) -> bytes:
    """Return the file's text as UTF-8 without a mark.

    Raises:
        ValueError: It cannot be read, or it is no text.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"workload.path={path}: cannot be read ({error.strerror})") from None
    for magic, kind in _PACKED.items():
        if data.startswith(magic):
            raise ValueError(f"workload.path={path}: {kind}")
    for encoding, marks in (("utf-32", _UTF32), ("utf-16", _UTF16)):
        if data.startswith(marks):
            try:
                return data.decode(encoding).encode()
            except UnicodeError as error:
                raise ValueError(
                    f"{path.name}: marked as {encoding.upper()} and not readable as such ({error});"
                    " save it as UTF-8"
                ) from None
    if b"\x00" in data:
        line = data[: data.index(b"\x00")].count(b"\n") + 1
        raise ValueError(
            f"{path.name}:{line}: a NUL byte: this is UTF-16 without its mark, or a damaged file;"
            " save it as UTF-8"
        )
    return data.removeprefix(codecs.BOM_UTF8)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError) as error:
        return isinstance(error, RecursionError)  # which `parse` says better
    return True


def _hint(line: bytes) -> str:
    """Say what is probably wrong with a line that is no JSON, or ""."""
    text = line.strip()
    if text.endswith(b",") and _is_json(text[:-1]):
        return "; remove the comma at its end: one object a line, nothing between them"
    if text in (b"{", b"[", b"}", b"]", b"},") or text[-1:] in (b"{", b"["):
        return (
            "; an object over several lines: write one object a line (jq -c . FILE), or all of"
            " them as one array"
        )
    return ""


def _of_array(items: Any, name: str) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a file that is one array: rows, or the messages of one conversation."""
    if not isinstance(items, list) or is_turns(items):
        yield f"{name}:1", _row(items, f"{name}:1")
        return
    for number, item in enumerate(items):
        yield f"{name}[{number}]", _row(item, f"{name}[{number}]")


def _row(value: Any, where: str) -> Row:
    """Return a row as an object.

    Raises:
        ValueError: It is neither an object nor a list of messages.
    """
    if isinstance(value, dict):
        return value
    if is_turns(value):
        return {"messages": value}
    kind = "a list, but not of messages" if isinstance(value, list) else f"a {type(value).__name__}"
    raise ValueError(f'{where}: not a JSON object: {kind}; write {{"prompt": "…"}} or a list of'
                     ' {"role": …, "content": …}')  # fmt: skip


def is_turns(value: Any) -> bool:
    """Return whether a value is a list of messages, in OpenAI's or ShareGPT's form."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(turn, dict) and ("role" in turn or "from" in turn) for turn in value)
    )
