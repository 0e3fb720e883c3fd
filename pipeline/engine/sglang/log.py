"""A server's log: followed into ours, read for progress and for what the server says it did."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

from verify.sglang_plugin import ANNOUNCEMENT

FOLLOW_S = 0.2
TAIL_LINES = 12
# What a line says about how far the start is; the last match counts.
_PHASES = (
    (re.compile(r"Load weight begin"), "loading weights"),
    (re.compile(r"Loading safetensors checkpoint shards:\s+(\d+% Completed)"), "loading weights"),
    (re.compile(r"Load weight end"), "weights are loaded"),
    (re.compile(r"Memory pool end"), "cache is allocated"),
    (re.compile(r"ninja|nvcc|[Cc]ompiling|JIT"), "compiling kernels"),
    (re.compile(r"Capture (.+?) CUDA graph begin"), "capturing graphs"),
    (re.compile(r"Capture (.+?) CUDA graph end"), "captured graphs"),
    (re.compile(r"Uvicorn running on|Application startup complete"), "answering"),
)
_BIND = re.compile(r"[Aa]ddress already in use|Errno 98|Port \d+ is (already )?in use")
_MEMORY = re.compile(r"out of memory|Not enough memory|OutOfMemory")
_CRASH = re.compile(r"Subprocess \S+ \(pid=\d+\) crashed with exit code")
_UNFUSED = re.compile(
    r".*(?:Failed to initialize FlashInfer workspace|Skipping allreduce fusion"
    r"|allreduce_fusion API is not available|FlashInfer comm not available"
    r"|allreduce fusion disabled globally).*"
)
_REFUSAL = re.compile(r"^[\w. -]+: error: (.+)$", re.MULTILINE)  # of argparse


class ServerLog:
    """One server's log file.

    Attributes:
        phase: How far the start is.
    """

    def __init__(self, path: Path) -> None:
        """Begin to follow a file, which need not exist yet."""
        self.phase = "starting"
        self._path = path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read what is left and stop following."""
        self._ended.set()
        self._thread.join()

    @property
    def text(self) -> str:
        """All that the server has said."""
        return self._path.read_text(errors="replace") if self._path.exists() else ""

    @property
    def tail(self) -> str:
        """The last lines, as one."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return " | ".join(lines[-TAIL_LINES:])

    @property
    def cause(self) -> str:
        """The line that says best why the server ended: a death, the last error, the last line."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
        memory = [line for line in lines if _MEMORY.search(line)]
        crashes = [line for line in lines if _CRASH.search(line)]
        return (memory or crashes or errors or lines or ["it said nothing"])[-1]

    @property
    def bind_failed(self) -> bool:
        """Whether the port was taken."""
        return bool(_BIND.search(self.text))

    @property
    def refusal(self) -> str:
        """What the server's own parser refuses in its arguments; empty if it takes them."""
        found = _REFUSAL.findall(self.text)
        return found[-1].strip() if found else ""

    @property
    def plugin_active(self) -> bool:
        """Whether our plugin announced itself."""
        return ANNOUNCEMENT in self.text

    @property
    def fusion_failure(self) -> str:
        """The line in which the server gives up fusing, if any."""
        found = _UNFUSED.search(self.text)
        return found.group(0).strip() if found else ""

    def _follow(self) -> None:
        """Copy new lines to this process's own log, which outlives the server."""
        position, ended = 0, False
        while not ended:
            ended = self._ended.wait(FOLLOW_S)
            position = self._copy(position)

    def _copy(self, position: int) -> int:
        if not self._path.exists():
            return position
        with self._path.open(errors="replace") as file:
            file.seek(position)
            new = file.read()
            for line in new.splitlines():
                self._read(line)
            sys.stderr.write(new)
            sys.stderr.flush()
            return file.tell()

    def _read(self, line: str) -> None:
        """Note the phase that a line tells of."""
        for pattern, phase in _PHASES:
            if found := pattern.search(line):
                self.phase = f"{phase} ({found.group(1)})" if found.groups() else phase
