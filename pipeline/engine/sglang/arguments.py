"""From a cell to the arguments of its server: one typed value, one list."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
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
BREADTH = "speculative-eagle-topk"
_NUM_DRAFT_TOKENS = "speculative-num-draft-tokens"
Value = str | int | float
Flag = tuple[str, Value | None]  # None for a flag without a value
EAGER_VERIFY = (
    "# a server captures verify steps together with plain decode: these were measured eager, which"
    " takes the plugin"
)


@dataclass(frozen=True)
class ServerArguments:
    """Translates a cell into the arguments of its server.

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
        flags = (*self._model_flags(), *mode_flags(self.mode), *self.drafter)
        command = _launch(flags, self.extra)
        captured = self.mode.captures_verify or not self.mode.captures_decode
        return command if captured or not self.drafter else f"{EAGER_VERIFY}\n{command}"

    def _flags(self, port: int) -> Iterator[Flag]:
        yield from self._model_flags()
        yield "host", HOST
        yield "port", port
        yield "served-model-name", self.served_name
        yield from self._fixed_flags()
        yield from mode_flags(self.mode)
        yield from self.drafter

    def _model_flags(self) -> Iterator[Flag]:
        engine = self.engine
        yield from target_flags(
            self.model, self.revision, self.tp, self.dtype, self.trust_remote_code
        )
        # The default depends on the drafter; pinned, so that a cell differs in its label alone.
        yield "attention-backend", engine.attention
        yield "page-size", engine.page_size
        yield "mem-fraction-static", engine.mem_fraction
        if engine.context_length:
            yield "context-length", engine.context_length
        if engine.max_total_tokens:
            yield "max-total-tokens", engine.max_total_tokens

    def _fixed_flags(self) -> Iterator[Flag]:
        """Yield what makes cells comparable: the same for every one."""
        yield "load-format", self.engine.load_format
        yield "random-seed", self.seed
        yield "max-running-requests", self.batch  # speculation would set 48, plain decoding not
        yield "disable-radix-cache", None  # a repeated prompt would skip its prefill
        yield "enable-metrics", None
        yield "skip-server-warmup", None  # it would be counted
        yield "skip-tokenizer-init", None  # token ids go in and come out
        yield "grammar-backend", "none"

    def _graph_sizes(self) -> list[str]:
        """Return the captured batches: every size that can run, so that none falls out."""
        if not self.mode.captures_decode:
            return []
        return ["--cuda-graph-bs-decode", *(str(size) for size in graph_sizes(self.batch))]


def target_flags(
    model: str, revision: str, tp: int, dtype: str, trust_remote_code: bool
) -> Iterator[Flag]:
    """Yield what names the target."""
    yield "model-path", model
    if revision:
        yield "revision", revision
    yield "tp-size", tp
    if dtype != "auto":
        yield "dtype", dtype
    if trust_remote_code:
        yield "trust-remote-code", None


def mode_flags(mode: ServerMode) -> Iterator[Flag]:
    """Yield how forwards run."""
    yield "cuda-graph-backend-decode", "full" if mode.captures_decode else "disabled"
    yield "cuda-graph-backend-prefill", "disabled"
    if mode.allreduce == "fused":
        yield "flashinfer-allreduce-fusion-backend", "trtllm"  # never auto: see extras.py
        return
    yield "enforce-disable-flashinfer-allreduce-fusion", None
    if mode.allreduce == "nccl":
        yield "disable-custom-all-reduce", None


def _launch(flags: Iterable[Flag], extra: Iterable[str] = ()) -> str:
    """Write the command of a server, an argument a line."""
    words = ["python -m sglang.launch_server"]
    for flag, value in flags:
        words.append(f"--{flag}" if value is None else f"--{flag} {shlex.quote(str(value))}")
    return " \\\n  ".join([*words, *filter(None, [shlex.join(extra)])])


def deploy_elsewhere(cell: Cell, cache: Path) -> str:
    """Return the command that serves a cell of an engine that runs no server.

    Where such an engine verifies eagerly it decodes eagerly too, and so is the server told. The
    rest is left to the server's defaults: nothing was measured of it.

    Returns:
        The command; a shell comment with the reason where no server can run the cell.
    """
    target, drafter, verify = cell.target, cell.drafter, cell.verify
    for part, ability, lacks in (
        (drafter, ServesSglang, f"drafter={drafter.name} has no sglang_arguments()"),
        (verify, ServesVerify, f"verify={verify.name} has no server_mode()"),
    ):
        if not isinstance(part, ability):
            return f"# SGLang cannot serve this cell: {lacks}"
    try:
        named = _drafter_flags(cell)
        model = model_path(target, cache)
    except ValueError as error:
        return f"# SGLang cannot serve this cell: {error}"
    if not named and not cell.is_baseline:
        return f"# SGLang cannot serve this cell: drafter={drafter.name} names no {ALGORITHM}"
    mode = cast(ServesVerify, verify).server_mode()
    mode = replace(mode, captures_decode=mode.captures_verify)
    tp, trusted = cell.parallelism.tp, target.trust_remote_code
    flags = target_flags(model, target.revision, tp, target.dtype, trusted)
    return _launch((*flags, *mode_flags(mode), *named.items()))


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
    """Return the drafter's arguments, with how its weights load."""
    given = _drafter_flags(cell)
    if DRAFT_PATH in given and engine.load_format == "dummy":
        # A head with real weights beside a target without: only its cost means anything.
        given["speculative-draft-load-format"] = "auto"
    return tuple(given.items())


def _drafter_flags(cell: Cell) -> dict[str, Value]:
    """Return the drafter's arguments; only here the root is added to its draft tokens."""
    given = dict(cast(ServesSglang, cell.drafter).sglang_arguments())
    if ALGORITHM not in given:
        return {}
    return given | {_NUM_DRAFT_TOKENS: cell.drafter.num_draft_tokens + 1}
