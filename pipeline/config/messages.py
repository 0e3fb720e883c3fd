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
LONGEST = 4000  # characters of a message
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
    """Return what an error, or its text, says, as one line that a terminal can show.

    Texts out of files may hold anything: what moves a cursor or is no character becomes `?`, and
    the middle of a page is left out.
    """
    text = " ".join(str(error).split())
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def first_line(error: BaseException) -> str:
    """Return an error's first line, which says the most; its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def masked(text: str) -> str:
    """Return a text without secrets.

    Hidden are user and password of every address, what stands behind a name such as `api_key=` or
    `--token`, keys of a known form, and the value of every variable of the environment whose name
    says that it is secret.
    """
    for name, value in os.environ.items():
        if len(value) >= SHORTEST_SECRET and _SECRET_NAME.search(name):
            text = text.replace(value, HIDDEN)
    text = _IN_ADDRESS.sub(rf"://{HIDDEN}@", text)
    text = _NAMED.sub(rf"\1{HIDDEN}", text)
    return _KEYS.sub(HIDDEN, text)


HIDDEN = "***"
SHORTEST_SECRET = 8  # characters; a shorter value is a word that stands in any text
_WORDS = (
    r"(?:api[-_]?key|access[-_]?key|secret|passw(?:or)?d|credentials?|(?:auth|access|hf)[-_]?token)"
)
_SECRET_NAME = re.compile(rf"(?:{_WORDS}|TOKEN|_KEY)$", re.IGNORECASE)
# A password may itself hold `/` and `@`.
_IN_ADDRESS = re.compile(r"://(?:[^/@\s]+|[^/@:\s]*:[^@\s]+)@(?:[^/@\s]*@)*")
_NAMED = re.compile(
    rf"((?:--[\w-]*{_WORDS}['\"]?[\s,=]+|{_WORDS}['\"]?\s*[=:]\s*)['\"]?)(?!\*\*\*)[^\s'\"&,;]+",
    re.IGNORECASE,
)
_KEYS = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|gh[pousr]_[A-Za-z0-9]{16,})")
