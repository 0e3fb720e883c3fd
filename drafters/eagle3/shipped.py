"""Heads that come with this package, and their form for engines that read published ones only."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

from drafters.eagle3.compact import COMPACT

SHIPPED = "shipped:"
HEADS = Path(__file__).parent / "heads"
CARD = "training.json"  # beside a head: how it came about, and what it was measured at


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


def ship(run: Path, name: str) -> Path:
    """Put a trained head among those that come with the package; return its folder.

    Args:
        run: Folder of the training; `head` and its card are in it.
        name: Of the shipped head.

    Raises:
        ValueError: There is no head in it.
    """
    from drafters.eagle3.checkpoint import load_head, save_compact

    head, folder = load_head(run / "head"), HEADS / name
    save_compact(head, folder)
    card = json.loads((run / "head" / CARD).read_text())
    card["sha256"] = hashlib.sha256((folder / COMPACT).read_bytes()).hexdigest()
    (folder / CARD).write_text(json.dumps(card, indent=1) + "\n")
    return folder


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: python -m drafters.eagle3.shipped RUN_FOLDER NAME")
    sys.stdout.write(f"{ship(Path(sys.argv[1]), sys.argv[2])}\n")
