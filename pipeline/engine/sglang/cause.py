"""Why a server ended: the first cause in its log, not what followed from it.

One failure leaves many words. A rank raises; its siblings lose the connection; the parent says that
a scheduler died, ends, and breaks its own pipes. Each candidate gets a rank by what announced it,
and among those of the best rank the first counts.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from pipeline.config.messages import folded, masked

CHUNK_BYTES = 1 << 20
LINE_BYTES = 8192  # of a longer line, the beginning and the end are read
CAUSE_LENGTH = 600
TRACEBACK = "Traceback (most recent call last):"
# One of these is in whatever tells of an end; what surrounds them is read line by line.
TELLING = tuple(
    word.encode()
    for word in (
        *("Traceback", "rror", "Exception", "exception", "atal", "CRITICAL", "Assertion"),
        *("terminate called", "what():", "Segmentation", "Segfault", "*** ", "Abort", "Illegal"),
        *("Killed", "oom-kill", "free()", "malloc", "free or corr", "corrupted", "munmap_chunk"),
        *("smashing", "exit code", "Exit code", "is dead", "sigquit"),
    )
)


class Rank(IntEnum):
    """How sure it is that something ended the server, the surest first."""

    FATAL = 0  # a process says that this ended it
    UNCAUGHT = 1  # a traceback that nothing introduces
    SIGNAL = 2  # the parent saw a child end by a signal, and the child said nothing
    LOOSE = 3  # an error's line by itself
    FOLLOWED = 4  # what siblings and parents say when another process is gone
    HANDLED = 5  # a traceback that a warning introduces
    ECHO = 6  # the parent's word that a child ended
    NOISE = 7  # what ends a process from outside, and event loops


@dataclass
class Candidate:
    """One error, with what it was raised from.

    Attributes:
        rank: How sure it is that it ended the server.
        texts: The chain, the first first.
        is_direct: Whether each link was raised from the one before on purpose.
    """

    rank: Rank
    texts: list[str]
    is_direct: bool = True

    @property
    def text(self) -> str:
        """The first error that says something; where it is a mere look-up, what it led to."""
        texts = [t for t in self.texts if not (_ECHO.search(t) or _NOISE.match(t))] or self.texts
        first, last = texts[0], texts[-1]
        if first == last or last.endswith(first.partition(": ")[2]):
            return first
        if not self.is_direct and _LOOK_UP.match(first):
            return f"{last} (after {first})"
        return f"{first} (then {last})"


@dataclass
class _Finder:
    """Reads a log line by line and collects candidates."""

    candidates: list[Candidate] = field(default_factory=list)
    last_line: str = ""
    _headings: list[Rank] = field(default_factory=list)  # of tracebacks that have not ended yet
    _link: str = ""  # what chains the next traceback to the last one
    _before: str = ""  # the line before this one
    _source: str = ""  # the last line of code that a traceback showed
    _raised: Candidate | None = None  # whose message may go on
    _what: bool = False  # C++ is about to say what it threw

    def read(self, raw: str) -> None:
        """Take in a line."""
        line, has_prefix = _content(raw)
        if not line.strip():
            return
        if has_prefix:
            self._raised = None
        if _LINK.match(line):
            self._link = line
        elif (at := line.find(TRACEBACK)) >= 0:
            self._open(line[:at].strip())
        elif self._headings and line[0] in " \t":
            self._read_body(line.strip())
        else:
            self._read_word(line.strip(), has_prefix)
        self._before = line

    def _open(self, introduced_by: str) -> None:
        """Begin a traceback, unless it is the message of the one that is open."""
        if self._headings and _CLASS_ALONE.match(introduced_by):
            return
        before = "" if introduced_by else self._before
        self._source, self._raised = "", None
        if self._link:
            rank = self.candidates[-1].rank if self.candidates else Rank.UNCAUGHT
        elif _FATAL_HEADING.search(introduced_by) or _PROCESS.match(before):
            rank = Rank.FATAL
        elif _NOISE_HEADING.search(introduced_by + before):
            rank = Rank.NOISE
        elif introduced_by or _HANDLED_HEADING.search(before):
            rank = Rank.HANDLED
        else:
            rank = Rank.UNCAUGHT
        self._headings.append(rank)

    def _read_body(self, line: str) -> None:
        """Take in a line of a traceback."""
        if "spawn_main" in line:  # a child that died before it could catch anything
            self._headings[-1] = Rank.FATAL
        if not line.startswith(("File ", "^", "~")):
            self._source = line

    def _read_word(self, line: str, has_prefix: bool) -> None:
        """Take in a line that begins at the margin."""
        if self._headings and not has_prefix and _RAISED.match(line):
            self._close(line)
        elif self._raised is not None and _CLASS_ALONE.match(self._raised.texts[-1]):
            self._raised.texts[-1] += f" {line}"
        elif self._read_end(line):
            pass
        elif self._raised is not None:
            self._read_message(self._raised, line)
        elif _LOOSE.match(line) and not has_prefix:
            self._raised = self._add(Rank.LOOSE, line)
        elif not _BORING.search(line):
            self.last_line = line

    def _read_end(self, line: str) -> bool:
        """Take in a word of how a process ended, from its parent, from C++ or from the system."""
        if found := _ended_child(line):
            self._add(*found)
        elif self._what and (thrown := _WHAT.search(line)):
            self.candidates[-1].texts, self._what = [thrown.group(1)], False
        elif _NATIVE.search(line):
            self._what = line.startswith("terminate called")
            self._add(Rank.FATAL, line)
        else:
            return False
        return True

    def _close(self, line: str) -> None:
        """End a traceback with what was raised."""
        rank = self._headings.pop()
        if follows := _PREFIX.search(line):  # another process wrote on, without a line's end
            line = line[: follows.start()]
        if ":" not in line and self._source:
            line = f"{line}: {self._source}"
        if self._link and self.candidates:
            self._raised = self.candidates[-1]
            self._raised.texts.append(line)
            self._raised.is_direct &= "direct cause" in self._link
        elif found := _ended_child(line):
            self._raised = self._add(*found)
        else:
            self._raised = self._add(rank, line)
        self._link = ""

    def _read_message(self, raised: Candidate, line: str) -> None:
        """Complete an error that says further down in its message what went wrong."""
        if _LAST_ERROR.match(self._before) or (
            _REPORTS.search(raised.texts[-1]) and _COMPLAINT.search(line)
        ):
            raised.texts[-1] += f" {line}"
            self._raised = None

    def _add(self, rank: Rank, text: str) -> Candidate:
        if _NOISE.match(text):
            rank = Rank.NOISE
        elif rank <= Rank.LOOSE and _ECHO.search(text):
            rank = Rank.ECHO
        elif rank <= Rank.LOOSE and _FOLLOWED.search(text):
            rank = Rank.FOLLOWED if rank is Rank.FATAL else Rank.ECHO
        self.candidates.append(Candidate(rank, [text]))
        return self.candidates[-1]


def first_cause(path: Path) -> str:
    """Return the line of a log that says why its server ended, secrets in addresses hidden."""
    finder = _Finder()
    for line in log_lines(path, TELLING):
        finder.read(line)
    best = min(finder.candidates, key=lambda candidate: candidate.rank, default=None)
    text = finder.last_line or "it said nothing" if best is None else best.text
    if best is not None and best.rank >= Rank.ECHO:
        reason = best.text if best.text.endswith(_SILENT) else "it said no reason"
        text = f"{reason}; its last line: {finder.last_line}" if finder.last_line else reason
    text = masked(folded(text))
    return text if len(text) <= CAUSE_LENGTH else f"{text[:CAUSE_LENGTH]} …"


def log_lines(path: Path, telling: Sequence[bytes] = ()) -> Iterator[str]:
    """Yield a log's lines without colours; each state of a progress bar is one.

    Memory is bounded, whatever the file holds.

    Args:
        path: The log, which need not exist.
        telling: Words; a large part of the log without any, behind another one, is left out.
    """
    if not path.exists():
        return
    rest, left_out, told = b"", b"", True
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            block, rest = _whole_lines(rest + chunk)
            tells = not telling or any(word in block for word in telling)
            if tells or told:  # what a traceback raises may stand in the part behind it
                yield from map(_decoded, _LINE_END.split(block))
            left_out, told = b"" if tells or told else block[-LINE_BYTES:], tells
    yield from map(_decoded, _LINE_END.split(left_out + rest))


def _whole_lines(block: bytes) -> tuple[bytes, bytes]:
    """Return a block up to its last line's end, and the rest, shortened if it is very long."""
    end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
    rest = block[end:]
    if len(rest) > CHUNK_BYTES:
        rest = rest[:LINE_BYTES] + rest[-LINE_BYTES:]
    return block[:end], rest


def _decoded(line: bytes) -> str:
    """Return a line as text, of a long one both ends."""
    if len(line) > 2 * LINE_BYTES:
        line = line[:LINE_BYTES] + b" ... " + line[-LINE_BYTES:]
    return (
        _COLOUR.sub("", line.decode(errors="replace"))
        if b"\x1b" in line
        else line.decode(errors="replace")
    )


def _content(line: str) -> tuple[str, bool]:
    """Return what a line says behind its logger's prefix or a progress bar, and if it had one."""
    if "]" not in line:
        return line, False
    line = _RANK_PREFIX.sub("", line)
    if bar := _BAR_END.search(line):
        line = line[bar.end() :] or line
    if prefix := _PREFIX.match(line):
        return line[prefix.end() :], True
    return line, False


def _ended_child(line: str) -> tuple[Rank, str] | None:
    """Return what a parent's word tells of how its child ended: by which signal, if any."""
    found = _CHILD.search(line)
    if found is None:
        return None
    who, status = next(name for name in found.groups()[:-1] if name), int(found.groups()[-1])
    who = {"Exit": "a scheduler"}.get(
        who, f"the scheduler of rank {who}" if who.isdecimal() else who
    )
    if status >= 0:
        return Rank.ECHO, f"{who} ended with exit code {status}{_SILENT}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "a signal"
    why = " (the machine's memory ran out, or someone killed it)" if status == -9 else ""
    return Rank.SIGNAL, f"{who} crashed with exit code {status}: {name}{why}"


_SILENT = " and said no reason"
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(r"\[(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:[.,]\d+)?[^\]]*\] ?")
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")  # of torch, before each line of a traceback
_BAR_END = re.compile(r"^.*(?:it|s|B)/(?:it|s)\]")
_LINE_END = re.compile(rb"[\r\n]+")
_LINK = re.compile(
    r"(?:During handling of the above exception|The above exception was the direct cause)"
)
_LEVEL = r"(?!(?:INFO|DEBUG|WARN|WARNING|ERROR|CRITICAL|NOTE|Note|future)\b)"
_CLASS = r"(?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Exit|Interrupt|Timeout|Iteration)"
_RAISED = re.compile(rf"^{_LEVEL}(?:[A-Za-z_][\w.]*: |{_CLASS}:?$)")
_CLASS_ALONE = re.compile(r"^[A-Za-z_][\w.]*:$")
_LOOSE = re.compile(
    rf"^(?:{_CLASS}(?:: .*|:?)$|ERROR: +\[Errno|[\w. -]+: error: |Killed$|(?:nvcc|ptxas) +fatal)"
)
_FATAL_HEADING = re.compile(r"hit an exception|[Ii]nitialization failed|warmup error|[Ff]atal")
_PROCESS = re.compile(r"^Process \S+:$")
_HANDLED_HEADING = re.compile(
    r"warn|ignor|skip|fall.{0,4}back|disabl|optional|not available|could not|cannot|"
    r"fail|retry|unable",
    re.IGNORECASE,
)
_NOISE_HEADING = re.compile(
    r"never retrieved|Exception ignored in|Exception in callback|^ERROR: *$|shutdown"
    r"|Logging error"
)
_NATIVE = re.compile(
    r"^terminate called|^Fatal Python error: |CUDA [Ee]rror \(|^CUDA [Ee]rror: "
    r"|\bSegmentation fault|Segfault encountered|\*\*\* SIG[A-Z]+ received"
    r"|\*\*\* Process received signal|^Bus error|^Illegal instruction|^Aborted"
    r"|[Oo]ut of memory: Killed process|\boom-kill\b"
    r"|Assertion [`'].*failed|symbol lookup error: |error while loading shared libraries"
    r"|^double free|^free\(\): |^malloc\(\): |^malloc_|^munmap_chunk|^corrupted |stack smashing"
    r"|terminated with exception: |\bCRITICAL\b"
)
_WHAT = re.compile(r"what\(\): +(.+)")
_CHILD = re.compile(
    r"(?:Rank (\d+) scheduler died during initialization \(exit code:?"
    r"|(Subprocess \S+ \(pid=\d+\)) crashed with exit code"
    r"|(Child process) unexpectedly failed with an exit code"
    r"|^(Exit) code:) ?(-?\d+)"
)
_ECHO = re.compile(
    r"scheduler died during initialization|scheduler is dead|Received sigquit"
    r"|see the error messages above|means the child failed"
)
_BORING = re.compile(  # says nothing of a cause, so is no last word
    _ECHO.pattern + r"|kill_process_tree|Waiting .* for CUDA coredumps|Triggering SIGQUIT|SIGTERM"
    r"|resource_tracker|^warnings\.warn|Warning: |^future: "
    r"|\d+%\||% Completed|(?:it|s|B)/(?:it|s)\]"
)
_FOLLOWED = re.compile(
    r"^(?:\w+\.)*(?:EOFError|BrokenPipeError|Connection(?:Reset|Aborted|Refused)?Error)\b"
    r"|[Cc]onnection (?:was )?(?:closed|reset) by (?:remote )?peer|Broken pipe"
    r"|remote process exited|ncclRemoteError|recvValue failed|[Ff]ailed to recv, got 0 bytes"
    r"|store->get\("
)
_NOISE = re.compile(r"^(?:\w+\.)*(?:KeyboardInterrupt|SystemExit|CancelledError)\b")
_LOOK_UP = re.compile(
    r"^(?:\w+\.)*(?:KeyError|IndexError|AttributeError|StopIteration|gaierror|Empty|LookupError)\b"
)
_LAST_ERROR = re.compile(r"^Last error:")
_REPORTS = re.compile(r"(?:[:(]|output.{0,12}|status \d+\.?|validation errors? for \S+)$")
_COMPLAINT = re.compile(
    r"\b(?:fatal|error|not found|unsupported|undefined|killed)\b", re.IGNORECASE
)
