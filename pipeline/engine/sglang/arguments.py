"""From a cell to the arguments of its server: one typed value, one list."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from drafters.base import ServesSglang
from pipeline.cell.cell import Cell
from pipeline.engine.sglang.model import model_path
from verify.base import ServerMode, ServesVerify

if TYPE_CHECKING:
    from pipeline.engine.sglang.settings import SglangSettings

HOST = "127.0.0.1"
DRAFT_PATH = "speculative-draft-model-path"
ALGORITHM = "speculative-algorithm"
_NUM_DRAFT_TOKENS = "speculative-num-draft-tokens"
Value = str | int | float


@dataclass(frozen=True)
class ServerArguments:
    """All that a cell says of its server.

    Attributes:
        model: Folder or hub id.
        served_name: Name that the server answers under; the cell's own, so that it is known again.
        batch: Requests in flight; also the largest captured batch.
        drafter: Arguments that name the drafter, empty for plain decoding.
        mode: How the verify backend wants forwards to run.
        extra: The user's own, checked.
    """

    model: str
    revision: str
    served_name: str
    tp: int
    batch: int
    dtype: str
    trust_remote_code: bool
    seed: int
    engine: SglangSettings
    drafter: tuple[tuple[str, Value], ...]
    mode: ServerMode
    extra: tuple[str, ...]

    def command(self, port: int) -> list[str]:
        """Return the whole command of the server."""
        python = self.engine.python or sys.executable
        return [python, "-m", "sglang.launch_server", *self.words(port)]

    def words(self, port: int) -> list[str]:
        """Return the arguments of `sglang.launch_server`, in a fixed order."""
        words: list[str] = []
        for flag, value in self._flags(port):
            words += [f"--{flag}"] if value is None else [f"--{flag}", str(value)]
        return [*words, *self._graph_sizes(), *self.extra]

    def deploy(self) -> str:
        """Return the command that serves the same cell without measuring it."""
        words = ["python -m sglang.launch_server"]
        for flag, value in (*self._model_flags(), *self._mode_flags(), *self.drafter):
            words.append(f"--{flag}" if value is None else f"--{flag} {shlex.quote(str(value))}")
        words += [shlex.join(self.extra)] if self.extra else []
        return " \\\n  ".join(words)

    def _flags(self, port: int) -> Iterator[tuple[str, Value | None]]:
        yield from self._model_flags()
        yield "host", HOST
        yield "port", port
        yield "served-model-name", self.served_name
        yield from self._fixed_flags()
        yield from self._mode_flags()
        yield from self.drafter

    def _model_flags(self) -> Iterator[tuple[str, Value | None]]:
        engine = self.engine
        yield "model-path", self.model
        if self.revision:
            yield "revision", self.revision
        yield "tp-size", self.tp
        if self.dtype != "auto":
            yield "dtype", self.dtype
        if self.trust_remote_code:
            yield "trust-remote-code", None
        # The default depends on the drafter; pinned, so that a cell differs in its label alone.
        yield "attention-backend", engine.attention
        yield "page-size", engine.page_size
        yield "mem-fraction-static", engine.mem_fraction
        if engine.context_length:
            yield "context-length", engine.context_length
        if engine.max_total_tokens:
            yield "max-total-tokens", engine.max_total_tokens

    def _fixed_flags(self) -> Iterator[tuple[str, Value | None]]:
        """Yield what makes cells comparable: the same for every one."""
        yield "load-format", self.engine.load_format
        yield "random-seed", self.seed
        yield "max-running-requests", self.batch  # speculation would set 48, plain decoding not
        yield "disable-radix-cache", None  # a repeated prompt would skip its prefill
        yield "enable-metrics", None
        yield "skip-server-warmup", None  # it would be counted
        yield "skip-tokenizer-init", None  # token ids go in and come out
        yield "grammar-backend", "none"

    def _mode_flags(self) -> Iterator[tuple[str, Value | None]]:
        mode = self.mode
        yield "cuda-graph-backend-decode", "full" if mode.captures_decode else "disabled"
        yield "cuda-graph-backend-prefill", "disabled"
        if mode.allreduce == "fused":
            yield "flashinfer-allreduce-fusion-backend", "trtllm"  # never auto: see extras.py
            return
        yield "enforce-disable-flashinfer-allreduce-fusion", None
        if mode.allreduce == "nccl":
            yield "disable-custom-all-reduce", None

    def _graph_sizes(self) -> list[str]:
        """Return the captured batches: every size that can run, so that none falls out."""
        if not self.mode.captures_decode:
            return []
        return ["--cuda-graph-bs-decode", *(str(size) for size in graph_sizes(self.batch))]


def graph_sizes(batch: int) -> list[int]:
    """Return batch sizes to capture: all up to 8, then steps of 8, and the largest."""
    return sorted({*range(1, min(batch, 8) + 1), *range(16, batch, 8), batch})


def server_arguments(cell: Cell, engine: SglangSettings, cache: Path) -> ServerArguments:
    """Return the arguments of a cell's server.

    Raises:
        ValueError: The target has no folder.
    """
    mode = cast(ServesVerify, cell.verify).server_mode()
    parallelism, target = cell.parallelism, cell.target
    return ServerArguments(
        model=model_path(target, cache),
        revision=target.revision,
        served_name=f"specroi-{cell.cell_id}",
        tp=parallelism.tp,
        batch=parallelism.batch,
        dtype=target.dtype,
        trust_remote_code=target.trust_remote_code,
        seed=cell.sampling.seed,
        engine=engine,
        drafter=_drafter(cell, engine),
        mode=mode,
        extra=engine.extra_args,  # checked with the engine's other settings
    )


def _drafter(cell: Cell, engine: SglangSettings) -> tuple[tuple[str, Value], ...]:
    """Return the drafter's arguments; only here the root is added to its draft tokens."""
    given = dict(cast(ServesSglang, cell.drafter).sglang_arguments())
    if ALGORITHM not in given:
        return ()
    given[_NUM_DRAFT_TOKENS] = cell.drafter.num_draft_tokens + 1
    if DRAFT_PATH in given and engine.load_format == "dummy":
        # A head with real weights beside a target without: only its cost means anything.
        given["speculative-draft-load-format"] = "auto"
    return tuple(given.items())
