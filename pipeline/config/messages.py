"""Fold an error into one line for a reason or a refusal, and hide passwords in addresses.

Libraries write anything from a page to nothing at all; a cell's reason must fit a table.
"""

from __future__ import annotations

import os
import re
import select
import sys
import tempfile
import traceback
from collections.abc import Callable

DEBUG = "SPECROI_DEBUG"  # set: the screen shows a traceback, too
BROKE_OFF, STOPPED, CLOSED = 2, 130, 141  # exit statuses; the last two are a shell's for signals
OUTSIDE = (OSError, ImportError, MemoryError)  # of the machine, not of this project


def guarded(command: str, work: Callable[[], int | None]) -> int:
    """Do a command's work and return its exit status; nothing unforeseen is a page of traceback.

    Args:
        command: What the user called.
        work: Returns a status, None for 0; its own refusals are said and done.
    """
    try:
        status = work() or 0
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:  # noqa: BLE001 - the one door for what nobody foresaw
        if isinstance(error, BrokenPipeError) and _output_is_closed():
            return CLOSED
        sys.stderr.write(f"{command} broke off: {broken_off(error)}\n")
        return BROKE_OFF


def broken_off(error: BaseException) -> str:
    """Return the line for an error that nobody foresaw; its traceback goes to a file."""
    trace = masked("".join(traceback.format_exception(error)))
    if os.environ.get(DEBUG):
        sys.stderr.write(trace)
    kind = "" if isinstance(error, OUTSIDE) else "; this is a bug in specroi: please report it with"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="specroi-", suffix=".log", delete=False
        ) as file:
            file.write(trace)
    except OSError as full:  # a full disk may be what broke it
        place = f"its traceback, which {DEBUG}=1 shows (no log could be written: {full.strerror})"
    else:
        place = f"the traceback in {file.name} ({DEBUG}=1 shows it)"
    return masked(f"{one_line(error)}{kind or ';'} {place}")


def _output_is_closed() -> bool:
    """Whether nobody reads what this process prints; then nothing more is tried."""
    output = 1
    poll = select.poll()
    poll.register(output, 0)
    closed = any(event & select.POLLERR for _, event in poll.poll(0))
    if closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return closed


def one_line(error: BaseException | None) -> str:
    """Return an error's type and all that it says."""
    text = folded(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def folded(error: object) -> str:
    """Return all that an error, or its text, says."""
    return " ".join(str(error).split())


def first_line(error: BaseException) -> str:
    """Return an error's first line, which says the most; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def masked(text: str) -> str:
    """Return a text with the user and password of every address in it hidden."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)
