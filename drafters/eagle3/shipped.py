"""Heads that come with this package, and their form for engines that read published ones only."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from drafters.eagle3.compact import COMPACT

if TYPE_CHECKING:
    from drafters.eagle3.checkpoint import Head

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


def ship(run: Path, name: str, size: int = 0) -> Path:
    """Put a trained head among those that come with the package; return its folder.

    Args:
        run: Folder of the training; `head` and its card are in it.
        name: Of the shipped head.
        size: Draft tokens to keep; 0 keeps all.

    Raises:
        ValueError: There is no head in it.
    """
    from drafters.eagle3.checkpoint import load_head, save_compact

    head, folder = load_head(run / "head"), HEADS / name
    save_compact(_smaller(head, size) if size else head, folder)
    card = json.loads((run / "head" / CARD).read_text())
    card["sha256"] = hashlib.sha256((folder / COMPACT).read_bytes()).hexdigest()
    (folder / CARD).write_text(json.dumps(card, indent=1) + "\n")
    return folder


def _smaller(head: Head, size: int) -> Head:
    """Leave out draft tokens, first those with the largest rows.

    Training shrinks a row each time its token is in the text, so that the rare ones stay large: of
    640 left out of the embedded target's 8,192, 81 are among its 4,096 most frequent.
    """
    from drafters.vocab.maps import VocabMap
    from drafters.vocab.remap import remap

    rows = head.tensors["lm_head.weight"].float().norm(dim=1)
    kept = rows.argsort()[:size].sort().values
    return remap(head, VocabMap(head.vocab.ids[kept], head.shape.vocab_size))[0]


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit("usage: python -m drafters.eagle3.shipped RUN_FOLDER NAME [DRAFT_TOKENS]")
    where = ship(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else 0)
    sys.stdout.write(f"{where}\n")
