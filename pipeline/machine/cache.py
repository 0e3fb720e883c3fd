"""Things built once and kept: a folder in the cache is whole or it is not there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

DEFAULT = "~/.cache/specroi"


def cache_root(setting: str | os.PathLike[str] | None = None) -> Path:
    """Return the cache folder: the setting, else `SPECROI_CACHE`, else `~/.cache/specroi`.

    Raises:
        ValueError: It cannot be created or written.
    """
    root = Path(setting or os.environ.get("SPECROI_CACHE") or DEFAULT).expanduser().absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
        writable = os.access(root, os.W_OK | os.X_OK)
    except OSError as error:
        raise ValueError(_unwritable(root, error.strerror)) from None
    if not writable:
        raise ValueError(_unwritable(root, "no write permission"))
    return root


def built_once(folder: Path, num_bytes: int, build: Callable[[Path], None]) -> Path:
    """Return `folder`, built first if it is not there.

    The build writes into a temporary folder that is renamed when it is complete: a crash leaves
    no half result, and the next build removes what it left. Processes that want the same folder
    wait for the one that builds it.

    Args:
        folder: What to build; its parent is created.
        num_bytes: Space that the build needs; checked before it starts.
        build: Fills the folder that it is given.

    Raises:
        ValueError: The disk is too full or the folder cannot be written.
    """
    if folder.is_dir():
        return folder
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock")):
            if not folder.is_dir():
                shutil.rmtree(partial, ignore_errors=True)
                if _free(folder.parent) < num_bytes:
                    raise OSError(errno.ENOSPC, "No space left on device")
                try:
                    partial.mkdir()
                    build(partial)
                    partial.rename(folder)
                finally:  # whatever the build raised
                    shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ValueError(_full(folder, num_bytes)) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise ValueError(_unwritable(folder, error.strerror)) from None
        raise
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the kernel drops it when the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _full(folder: Path, num_bytes: int) -> str:
    need, free = num_bytes / 1e6, _free(folder.parent) / 1e6
    return (
        f"cache: {folder.name} needs {need:,.0f} MB and {folder.parent} has {free:,.0f} MB free;"
        " free some or set cache=FOLDER (or SPECROI_CACHE) on a larger disk"
    )


def _unwritable(folder: Path, why: str | None) -> str:
    return f"cache: cannot write {folder} ({why}); set cache=FOLDER or SPECROI_CACHE"
