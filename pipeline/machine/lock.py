"""One sweep at a time on a machine: two would spoil each other's timing or share a GPU.

The lock is one file for the whole machine, whatever a shell's TMPDIR is. `SPECROI_LOCK` names
another one: for containers that share a machine but not its /tmp (a file that they share), and for
tests.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

SETTING = "SPECROI_LOCK"
DEFAULT = "/tmp/specroi.lock"


def lock_path() -> Path:
    """Return the machine's lock file."""
    return Path(os.environ.get(SETTING) or DEFAULT).expanduser().absolute()


@contextlib.contextmanager
def machine_lock(holder: str, on_busy: str, say: Callable[[str], None]) -> Iterator[int]:
    """Hold the machine for one sweep; gives the lock's file descriptor.

    The kernel frees the lock when the last process that has the descriptor is gone, so that no
    stale lock can remain after a kill.

    Args:
        holder: What the file says of the holder, for the one who finds it busy.
        on_busy: `wait` or `refuse`.
        say: Takes the line that says what is waited for.

    Raises:
        ValueError: Another sweep runs and `on_busy` is `refuse`, or the file cannot be opened.
    """
    descriptor = _open(lock_path())
    try:
        _acquire(descriptor, on_busy, say)
        with contextlib.suppress(OSError):  # another user's file: held all the same, unnamed
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"pid {os.getpid()}, {holder}".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open the lock file; to lock one of another user, reading it is enough.

    Raises:
        ValueError: It cannot be opened, or is a link: it lies where anyone may put one.
    """
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o644)
        except PermissionError:
            return os.open(path, flags | os.O_RDONLY)
    except OSError as error:
        raise ValueError(
            f"the lock of this machine, {path}, cannot be opened ({error.strerror}); name a file"
            f" that all who use this machine can open in {SETTING}"
        ) from None
    with contextlib.suppress(PermissionError):  # another user's
        os.fchmod(descriptor, 0o644)  # others must be able to lock it, whatever our umask
    return descriptor


def _acquire(descriptor: int, on_busy: str, say: Callable[[str], None]) -> None:
    """Lock the file, at once or when its holder is done."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 500, 0).decode(errors="replace") or "unknown"
        if on_busy == "refuse":
            raise ValueError(
                f"launcher.on_busy=refuse: another sweep runs on this machine ({holder}); wait for"
                " it, or queue behind it with launcher.on_busy=wait"
            ) from None
        say(f"waiting for the sweep that runs on this machine ({holder})")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
