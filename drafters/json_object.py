"""The JSON object in a file, as checkpoints of heads and targets keep their settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


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
