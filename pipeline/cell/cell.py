"""A cell: one frozen combination to measure, and its identity."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from drafters.base import CarriesNote, CopiesText, Drafter
from pipeline.cell.response import Session
from pipeline.config.instantiate import check_numbers
from pipeline.config.messages import masked
from pipeline.target.target import Target
from pipeline.workload.sources import Workload
from verify.base import VerifyBackend

TEMPERATURES = (1e-3, 100.0)  # beside 0
MOST_AT_ONCE = 65536  # ranks, requests in flight, tokens of a step


@dataclass(frozen=True)
class Parallelism:
    """How many devices and requests a cell uses.

    Attributes:
        tp: Tensor-parallel ranks.
        batch: Requests in flight (closed loop).
    """

    tp: int = 1
    batch: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name, value in (("tp", self.tp), ("batch", self.batch)):
            check_numbers(f"parallelism.{name}", value)
            if value < 1:
                raise ValueError(f"parallelism.{name}={value}: must be 1 or more")
            if value > MOST_AT_ONCE:
                raise ValueError(f"parallelism.{name}={value}: at most {MOST_AT_ONCE}")


@dataclass(frozen=True)
class Abilities:
    """What a verdict must know of a cell's drafter and verify backend beyond their names.

    Attributes:
        copies_text: The drafter copies text instead of running a model.
        captures_verify: Verify steps are to be replayed from a capture.
        fuses_allreduce: All-reduce, residual add and norm are to be one kernel.
    """

    copies_text: bool = False
    captures_verify: bool = False
    fuses_allreduce: bool = False


@dataclass(frozen=True)
class Cell:
    """One combination: what is measured, never how long. Hashable; equal cells are one cell.

    Attributes:
        prompts_digest: Hash of the prompts that the workload gave when the cell was built.
    """

    target: Target
    drafter: Drafter
    verify: VerifyBackend
    engine: Engine
    workload: Workload
    sampling: Sampling
    parallelism: Parallelism
    prompts_digest: str

    @property
    def label(self) -> str:
        """Short name for people: drafter and verify backend, and what is not real about it."""
        name, held = f"{self.drafter.name} × {self.verify.name}", self.sampling.held_accept_length
        return f"{name} (accept length held at {held:g})" if held and not self.is_baseline else name

    @property
    def cell_id(self) -> str:
        """Identity: a hash of the prompts and of every setting but time-outs, 12 hex digits."""
        return _digest(_measured(describe(self)))

    @property
    def comparison(self) -> str:
        """Hash of what cells must share to be compared: all but drafter and verify backend."""
        kept = {k: v for k, v in describe(self).items() if k not in ("drafter", "verify")}
        return _digest(_measured(kept))

    @property
    def is_baseline(self) -> bool:
        """Whether the cell decodes plainly."""
        return self.drafter.num_draft_tokens == 0

    @property
    def abilities(self) -> Abilities:
        """What its drafter and its verify backend say of themselves."""
        drafter, verify = self.drafter, self.verify
        return Abilities(
            copies_text=isinstance(drafter, CopiesText) and drafter.copies_text,
            captures_verify=verify.captures_verify,
            fuses_allreduce=verify.fuses_allreduce,
        )


def describe(part: Any) -> Any:
    """Return a settings object as plain data, each dataclass with its class's name.

    The name without its module: a cell stays the same cell when code moves.
    """
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        fields = {f.name: describe(getattr(part, f.name)) for f in dataclasses.fields(part)}
        return {"_target_": type(part).__qualname__, **fields}
    if isinstance(part, (list, tuple)):
        return [describe(item) for item in part]
    if isinstance(part, dict):
        return {str(key): describe(value) for key, value in part.items()}
    return part


def _measured(plain: Any) -> Any:
    """Leave out time-outs: how long one waits for a server changes no figure of it."""
    if isinstance(plain, dict):
        kept = {key: value for key, value in plain.items() if not key.endswith("_timeout_s")}
        return {key: _measured(value) for key, value in kept.items()}
    return [_measured(item) for item in plain] if isinstance(plain, list) else plain


def _digest(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:12]


def flat(cell: Cell) -> dict[str, str]:
    """Return the cell's settings as dotted names and short text, for tracking."""
    out: dict[str, str] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                if key != "_target_":
                    walk(f"{prefix}.{key}" if prefix else key, item)
        else:
            out[prefix] = masked(str(value))

    walk("", describe(cell))
    if isinstance(cell.drafter, CarriesNote) and cell.drafter.note:
        out["drafter.note"] = cell.drafter.note
    return out | {
        "target": cell.target.name,
        "drafter": cell.drafter.name,
        "verify": cell.verify.name,
        "engine": cell.engine.name,
        "workload": cell.workload.name,
    }


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen and when a response ends.

    Attributes:
        max_new_tokens: Most output tokens of a response, the one that prefill samples included.
        temperature: 0 is greedy.
        seed: Seed of the sampler; each prompt and repetition derives its own from it.
        held_accept_length: Accept length that the engine pretends on average, so that one lever
            moves while this one is held; 0 is the real one. The text is then worthless.
    """

    max_new_tokens: int
    temperature: float = 0.0
    seed: int = 0
    held_accept_length: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.max_new_tokens < 2:
            raise ValueError(
                f"sampling.max_new_tokens={self.max_new_tokens}: at least 2, since the first token"
                " comes from prefill and no verify step would run"
            )
        check_numbers("sampling", dataclasses.asdict(self))
        low, high = TEMPERATURES
        if self.temperature and not low <= self.temperature <= high:
            raise ValueError(
                f"sampling.temperature={self.temperature}: 0 (greedy), or from {low:g} to {high:g}:"
                " below, logits overflow, and above, the text is random"
            )
        if self.held_accept_length and self.held_accept_length < 1:
            raise ValueError(
                f"sampling.held_accept_length={self.held_accept_length}: 1 or more, or 0 for the"
                " real one"
            )
        if self.held_accept_length > MOST_AT_ONCE:
            raise ValueError(
                f"sampling.held_accept_length={self.held_accept_length}: more tokens than any step"
                " commits"
            )


class Engine(Protocol):
    """Settings of an engine; a frozen dataclass."""

    @property
    def name(self) -> str:
        """The engine's name in tables and tags."""

    def check(self, cell: Cell) -> None:
        """Refuse a cell that this engine cannot run, before anything starts.

        Raises:
            ValueError: The combination cannot run; the text names the setting and the fix.
        """

    def start(self, cell: Cell) -> Session:
        """Load the cell's parts in this process and return them ready for warm-up."""


@runtime_checkable
class DescribesStart(Protocol):
    """Ability of an engine: it can say what it would start."""

    def describe_start(self, cell: Cell) -> Iterable[str]:
        """Return the lines that a person can run; nothing is started."""


@runtime_checkable
class StaysLoaded(Protocol):
    """Ability of an engine: it can say whether other cells may be loaded beside it."""

    @property
    def resident(self) -> bool:
        """Whether it may stay loaded while other cells are measured."""


@runtime_checkable
class LimitsContext(Protocol):
    """Ability of an engine: it may take shorter requests than the target does."""

    @property
    def context_length(self) -> int:
        """Most tokens of a request; 0 is the target's own."""


@runtime_checkable
class EndsOwnStart(Protocol):
    """Ability of an engine: it ends a start that takes too long, and says how far it was."""

    @property
    def start_timeout_s(self) -> float:
        """Seconds from the launch until it does."""


@runtime_checkable
class NeedsGpus(Protocol):
    """Ability of an engine: it runs on GPUs."""

    def num_gpus(self, cell: Cell) -> int:
        """Return how many GPUs the cell needs."""
