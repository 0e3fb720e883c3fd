"""A server's log: followed into ours, read for progress and for what the server says it did."""

from __future__ import annotations

import codecs
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from pipeline.config.messages import masked
from pipeline.engine.sglang.cause import CHUNK_BYTES, first_cause, log_lines
from verify.sglang_plugin import ANNOUNCEMENT

FOLLOW_S = 0.2
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
_UNFUSED = re.compile(
    r"Failed to initialize FlashInfer workspace|Skipping allreduce fusion"
    r"|allreduce_fusion API is not available|FlashInfer comm not available"
    r"|allreduce fusion disabled globally"
)
_REFUSAL = re.compile(r"^[\w. -]+: error: (.+)$")  # of argparse


class ServerLog:
    """One server's log file.

    Attributes:
        phase: How far the start is.
    """

    def __init__(self, path: Path) -> None:
        """Begin to follow a file, which need not exist yet."""
        self.phase = "starting"
        self._path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read what is left and stop following."""
        self._ended.set()
        self._thread.join()

    @property
    def cause(self) -> str:
        """The first cause of the server's end, as its log tells it."""
        return first_cause(self._path)

    @property
    def bind_failed(self) -> bool:
        """Whether the port was taken."""
        return any(_BIND.search(line) for line in self._lines)

    @property
    def refusal(self) -> str:
        """What the server's own parser refuses in its arguments; empty if it takes them."""
        found = [match.group(1) for line in self._lines if (match := _REFUSAL.match(line))]
        return found[-1].strip() if found else ""

    @property
    def plugin_active(self) -> bool:
        """Whether our plugin announced itself."""
        return any(ANNOUNCEMENT in line for line in self._lines)

    @property
    def fusion_failure(self) -> str:
        """The line in which the server gives up fusing, if any."""
        return next((line.strip() for line in self._lines if _UNFUSED.search(line)), "")

    @property
    def _lines(self) -> Iterator[str]:
        """All that the server has said."""
        return log_lines(self._path)

    def _follow(self) -> None:
        """Copy new lines to this process's own log, which outlives the server."""
        position, ended = 0, False
        while not ended:
            ended = self._ended.wait(FOLLOW_S)
            position = self._copy(position)

    def _copy(self, position: int) -> int:
        if not self._path.exists():
            return position
        with self._path.open("rb") as file:
            file.seek(position)
            while piece := file.read(CHUNK_BYTES):
                new = self._decoder.decode(piece)
                for line in new.splitlines():
                    self._read(line)
                sys.stderr.write(masked(new))
                sys.stderr.flush()
            return file.tell()

    def _read(self, line: str) -> None:
        """Note the phase that a line tells of."""
        for pattern, phase in _PHASES:
            if found := pattern.search(line):
                self.phase = f"{phase} ({found.group(1)})" if found.groups() else phase
