"""The seam of an engine: prompts in, responses with raw counts and times out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from pipeline.workload.prompts import Prompt

if TYPE_CHECKING:
    from verify.base import Proof


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

    def generate(self, prompt: Prompt, repetition: int) -> Response:
        """Answer one prompt. State learnt from earlier requests is forgotten first."""

    def proof(self) -> Proof:
        """What ran since warm-up."""

    def settings(self) -> dict[str, str]:
        """What the engine resolved: threads, dtype, device, library versions."""

    def close(self) -> None:
        """Stop everything that the session started."""


@runtime_checkable
class AnswersTogether(Protocol):
    """Ability of a session: several requests in flight."""

    def answer(self, prompts: Sequence[Prompt], repetition: int) -> Sequence[Response]:
        """Answer prompts in a closed loop; responses are in the order of the prompts."""


def num_equal(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many token ids two outputs begin with in common."""
    pairs = zip(one, other, strict=False)
    shorter = min(len(one), len(other))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
