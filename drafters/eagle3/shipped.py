"""Heads that come with this package, and their form for engines that read published ones only."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from drafters.eagle3.compact import COMPACT

SHIPPED = "shipped:"
HEADS = Path(__file__).parent / "heads"


def shipped(source: str) -> Path:
    """Return the folder of `shipped:NAME`."""
    return HEADS / source.removeprefix(SHIPPED)


def unpacked(source: str) -> Path:
    """Return a folder with the head of `shipped:NAME` in the published form, made on first use.

    Raises:
        ValueError: There is no such head, or the cache folder cannot be written.
    """
    from drafters.eagle3.checkpoint import load_head, save_head

    head = load_head(shipped(source))
    digest = hashlib.sha256((shipped(source) / COMPACT).read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("SPECROI_CACHE") or "~/.cache/specroi").expanduser()
    folder = cache / "heads" / f"{source.removeprefix(SHIPPED)}-{digest}"
    try:
        save_head(head, folder)
    except OSError as error:
        raise ValueError(
            f"cache folder {folder} cannot be written ({error.strerror}); set SPECROI_CACHE"
        ) from None
    return folder


def names() -> list[str]:
    """Return the names of the heads that are there."""
    return sorted(path.parent.name for path in HEADS.glob(f"*/{COMPACT}"))
