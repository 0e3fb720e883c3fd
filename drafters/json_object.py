"""The JSON object in a file, as checkpoints of heads and targets keep settings and index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_LONGEST_NAME = 255  # bytes that a file's name may have


def json_object(path: Path) -> dict[str, Any]:
    """Return the object in a file.

    Raises:
        ValueError: The file is not a JSON object.
    """
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deep to be read") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value


def weight_map(index: Path) -> dict[str, str]:
    """Return the name of the file that an index of shards gives for each tensor.

    Links lead out of a folder only within the hub's cache, which keeps all files in `blobs`.

    Raises:
        ValueError: The index is damaged, or names what is not a file of its own folder.
    """
    parts = json_object(index).get("weight_map")
    if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
        raise ValueError(f"{index}: weight_map must name a file for each tensor")
    folder = index.parent.resolve()
    for part in sorted(set(parts.values())):
        place = folder / part
        if Path(part).name != part or not part.isprintable() or len(part) > _LONGEST_NAME:
            raise ValueError(f"{index}: {part:.80} is outside of its folder")
        real = place.resolve().parent if place.is_symlink() else folder
        if real not in (folder, folder.parents[1] / "blobs"):
            raise ValueError(f"{index}: {part} is a link out of its folder; copy the file there")
    return parts
