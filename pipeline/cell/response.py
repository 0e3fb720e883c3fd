"""The seam of an engine: prompts in, responses with raw counts and times out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pipeline.cell.cell import Cell
    from verify.base import Proof


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
        if self.temperature < 0:
            raise ValueError(f"sampling.temperature={self.temperature}: 0 (greedy) or more")
        if self.held_accept_length and self.held_accept_length < 1:
            raise ValueError(
                f"sampling.held_accept_length={self.held_accept_length}: 1 or more, or 0 for the"
                " real one"
            )


@dataclass(frozen=True)
class Prompt:
    """One prompt, ready for the engine.

    Attributes:
        id: Unique within the workload.
        category: Workload class: `chat`, `code`, `math`, `copy`, or a user's own.
        tokens: Token ids, chat template applied.
    """

    id: str
    category: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Response:
    """Raw counts and times of one prompt in one repetition. No ratio is stored.

    Attributes:
        prompt_id: The prompt's id.
        category: The prompt's workload class.
        num_prompt_tokens: Tokens of the prompt.
        tokens: Output token ids. The first was sampled by prefill; the stop token, if any, is last.
        margins: Best logit minus second best at each output token; empty if the engine has none.
        committed: Tokens committed by each verify step, draft tokens past the stop left out, so
            that `sum(committed) == len(tokens) - 1`.
        proposed: Draft tokens proposed in each verify step.
        depth: Longest root-to-leaf path of each step's draft.
        verify_ms: Device time of each step's target forward.
        draft_ms: Drafter's time in each step.
        step_ms: Wall time of each step; host time is what verify and draft leave of it.
        prefill_ms: Wall time from the request to its first token.
        decode_ms: Wall time from the first token to the last.
        finish: `stop` or `length`.
        others_cpu: Share of the machine's CPU time that other processes used meanwhile, 0 to 1;
            -1 where it cannot be read.
    """

    prompt_id: str
    category: str
    num_prompt_tokens: int
    tokens: tuple[int, ...]
    margins: tuple[float, ...]
    committed: tuple[int, ...]
    proposed: tuple[int, ...]
    depth: tuple[int, ...]
    verify_ms: tuple[float, ...]
    draft_ms: tuple[float, ...]
    step_ms: tuple[float, ...]
    prefill_ms: float
    decode_ms: float
    finish: str
    others_cpu: float


class Session(Protocol):
    """A started engine with one cell loaded."""

    def warm_up(self, prompts: list[Prompt]) -> None:
        """Run once what will be measured, uncounted: compile, capture, fill caches."""
        ...

    def generate(self, prompt: Prompt, repetition: int) -> Response:
        """Answer one prompt. State learnt from earlier requests is forgotten first."""
        ...

    def proof(self) -> Proof:
        """What ran since warm-up."""
        ...

    def settings(self) -> dict[str, str]:
        """What the engine resolved: threads, dtype, device, library versions."""
        ...

    def close(self) -> None:
        """Stop everything that the session started."""
        ...


@runtime_checkable
class AnswersTogether(Protocol):
    """Ability of a session: several requests in flight."""

    def answer(self, prompts: Sequence[Prompt], repetition: int) -> Sequence[Response]:
        """Answer prompts in a closed loop; responses are in the order of the prompts."""
        ...


@runtime_checkable
class DescribesStart(Protocol):
    """Ability of an engine: it can say what it would start."""

    def describe_start(self, cell: Cell) -> Iterable[str]:
        """Return the lines that a person can run; nothing is started."""
        ...


class Engine(Protocol):
    """Settings of an engine; a frozen dataclass."""

    @property
    def name(self) -> str:
        """The engine's name in tables and tags."""
        ...

    def check(self, cell: Cell) -> None:
        """Refuse a cell that this engine cannot run, before anything starts.

        Raises:
            ValueError: The combination cannot run; the text names the setting and the fix.
        """
        ...

    def start(self, cell: Cell) -> Session:
        """Load the cell's parts in this process and return them ready for warm-up."""
        ...
