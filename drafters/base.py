"""The seam of a drafter: what a proposal is, and the abilities a drafter may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from verify.base import TargetShape

if TYPE_CHECKING:  # configs are checked without the seconds that torch takes to load
    from ctypes import CDLL
    from pathlib import Path

    import torch
    from torch import Tensor

ROOT = -1  # parent of a draft token that follows the last committed token


@dataclass(frozen=True)
class Draft:
    """Draft tokens of one step, as a tree below the root; a chain is a tree without branches.

    Attributes:
        tokens: K target token ids.
        parents: K indices into `tokens`; `ROOT` for a child of the last committed token. A
            parent comes before its children.
        probs: [K, V] float32 or None. Row i is the distribution that token i was drawn from;
            None says that every token was chosen outright (probability 1).
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    probs: Tensor | None = None

    def __post_init__(self) -> None:
        """Check that parents precede children."""
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"{len(self.tokens)} draft tokens but {len(self.parents)} parents")
        if any(not ROOT <= parent < child for child, parent in enumerate(self.parents)):
            raise ValueError(f"a draft token's parent must come before it: {self.parents}")

    @classmethod
    def chain(cls, tokens: Sequence[int], probs: Tensor | None = None) -> Draft:
        """Return the draft in which each token follows the one before; `probs` are [K, V]."""
        return cls(tuple(tokens), tuple(range(-1, len(tokens) - 1)), probs)

    @property
    def is_chain(self) -> bool:
        """Whether the draft has no branches."""
        return all(parent == child - 1 for child, parent in enumerate(self.parents))

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of each draft token: 1 for a child of the root."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)


class Context(NamedTuple):
    """What a drafter may look at when it proposes.

    Attributes:
        tokens: Prompt and output so far; the last is the root of the coming step.
        features: [N, C * H] float32 or None: the target's hidden states at the capture layers of
            the N tokens that it has read since the last proposal (the first time: the last token
            of the prompt).
            The root has not been read yet, so row i belongs to `tokens[len(tokens) - 1 - N + i]`.
            None for drafters without capture layers.
        temperature: The target's; 0 is greedy. Drafting from it is a drafter's own choice.
        sampler: The only source of randomness, on the CPU; None where nothing is drawn.
    """

    tokens: Sequence[int]
    features: Tensor | None
    temperature: float = 0.0
    sampler: torch.Generator | None = None


@dataclass(frozen=True)
class TargetInfo:
    """The parts of a loaded target that an engine gives to a drafter at its start.

    Attributes:
        shape: The target's shape.
        embedding: The target's token embedding, [V, H], on its device.
        device: Where the target runs.
        dtype: What it computes in.
        capacity: Most tokens of a request, a step's draft included.
        threads: CPU threads of a step.
        captured: Whether verify steps are replayed from a capture; draft steps should be then too.
        compile: Compiles a C file that may use the headers of the target's own kernels, and loads
            it; None without a C compiler, or where the target does not run on a CPU.
    """

    shape: TargetShape
    embedding: Tensor
    device: torch.device
    dtype: torch.dtype
    capacity: int
    threads: int
    captured: bool
    compile: Callable[[Path], CDLL] | None = None


class Proposer(Protocol):
    """A drafter at work in an engine; holds weights and per-request state."""

    def begin(self, context: Context) -> None:
        """Forget all earlier requests and read the prompt; the time counts as prefill.

        Args:
            context: As for the first proposal, but with the features of the whole prompt.
        """

    def propose(self, context: Context) -> Draft:
        """Return at most `num_draft_tokens` draft tokens, none if there is nothing to say."""

    def close(self) -> None:
        """Free what the proposer holds."""


class Drafter(Protocol):
    """Settings of a drafter; a frozen dataclass."""

    @property
    def name(self) -> str:
        """The drafter's name in tables and tags."""

    @property
    def num_draft_tokens(self) -> int:
        """Most draft tokens in one step; the root is not counted. 0 for `none`."""


@runtime_checkable
class Proposes(Protocol):
    """Ability: the torch engine can run this drafter."""

    def capture_layers(self, num_layers: int) -> tuple[int, ...]:
        """Target layers whose inputs the drafter reads; empty for most."""

    def start(self, target: TargetInfo) -> Proposer:
        """Load what the drafter needs and return it ready to propose.

        Raises:
            ValueError: The drafter does not fit the target.
        """


@runtime_checkable
class CopiesText(Protocol):
    """Ability: the drafter may copy text instead of running a model."""

    @property
    def copies_text(self) -> bool:
        """Whether it does: then nothing of it can be trained, and a draft costs no forward."""


@runtime_checkable
class CarriesNote(Protocol):
    """Ability: the drafter may have something that a reader of a table must know."""

    @property
    def note(self) -> str:
        """A sentence such as which stand-in drafts; empty if there is nothing to know."""


@runtime_checkable
class NeedsFiles(Protocol):
    """Ability: the drafter reads files, which can be missing or wrong."""

    def check(self, local: bool = False) -> None:
        """Refuse files that the drafter cannot run with, before anything starts.

        Args:
            local: The files must be on this machine: the engine does not fetch any.

        Raises:
            ValueError: A file is missing, damaged or not what it should be.
        """


@runtime_checkable
class FitsTarget(Protocol):
    """Ability: the drafter was made for one target, and its files tell which."""

    def check_fits(self, target: TargetShape) -> None:
        """Refuse another target, before anything starts.

        Raises:
            ValueError: The drafter was made for another target.
        """


@runtime_checkable
class ServesSglang(Protocol):
    """Ability: SGLang can serve this drafter."""

    def sglang_arguments(self) -> dict[str, str | int | float]:
        """Server arguments, by SGLang's own names without the leading dashes.

        The number of draft tokens is not among them: SGLang counts the root too, and the engine
        alone converts.
        """
