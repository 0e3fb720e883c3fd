"""The seam of a verify backend: what a verify step takes and returns, and what proves its label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if (
    TYPE_CHECKING
):  # configs and reports read this module without the seconds that torch takes to load
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class TargetShape:
    """The shape of a Llama-family target.

    Attributes:
        hidden_size: Width of the residual stream.
        num_kv_heads: Key-value heads; `num_heads` is a multiple of it.
        head_dim: Width of one head; queries are `num_heads * head_dim` wide.
        rope_theta: Base of the rotary position embedding (rotate-half layout).
        max_positions: Tokens that the model was trained to attend to.
        tie_word_embeddings: The head reads the embedding's matrix.
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    rope_theta: float
    rms_norm_eps: float
    max_positions: int
    tie_word_embeddings: bool


class StepInput(NamedTuple):
    """One verify step's input: the root and its draft tokens, `W` in all.

    Attributes:
        tokens: [W] int64 on the CPU; row 0 is the root (the last committed token).
        positions: [W] int64 on the CPU; the root's position plus the row's depth in the tree.
        mask: [W, W] bool on the CPU; row may attend column. The diagonal is true. A chain's is
            lower triangular. Every row also attends all `start` slots before the step.
        start: Committed tokens that the cache already holds; row i is written to slot `start + i`.
    """

    tokens: Tensor
    positions: Tensor
    mask: Tensor
    start: int


class StepOutput(NamedTuple):
    """The target's output for each row of a step.

    Attributes:
        logits: [W, V] float32, on the model's device. Overwritten by the next step.
        best: [W] int64 on the CPU; argmax of each row, the lowest id on a tie.
        margin: [W] float32 on the CPU; best logit minus the second best.
        features: [W, C * H] float32 on the model's device, or None: the inputs of the C capture
            layers, side by side, for drafters that read the target's hidden states.
        device_ms: Time of the forward on the device, in ms (on a CPU: wall time of the forward).
    """

    logits: Tensor
    best: Tensor
    margin: Tensor
    features: Tensor | None
    device_ms: float


@dataclass(frozen=True)
class Proof:
    """What the engine itself counted while the cell ran; the label is checked against it.

    Attributes:
        capture: How steps were replayed: `none`, `cuda_graph`, `native_plan` (the whole step in
            one call of compiled code) or `jit_trace`.
        num_verify_steps: Verify steps run (drafter `none`: decode steps).
        num_captured_steps: Of these, the ones replayed from a capture.
        linear: Which matrix product ran, with its weight format.
        attention: Which attention ran.
        allreduce: `none`, `gloo`, `nccl`, `custom`, `shared_memory` or `fused`.
        allreduces_per_step: All-reduces in one target forward, fused ones included.
        fused_allreduces_per_step: Of these, the ones fused with residual add and RMSNorm.
        accept_source: Where accept counts come from.
        step: What the counted steps are: `verify`, or `decode` where a server decodes plainly
            outside its verify steps.
        fusable_allreduces_per_step: All-reduces that the engine can fuse for this architecture;
            None is all of them.
        problem: What the engine itself found wrong with its run; a cell with a problem is void.
        cached_prompt_tokens: Prompt tokens that a server took from its cache instead of computing.
        running_requests: Requests in a counted step, a mean over them: under load fewer than were
            allowed may run. 0 where the engine answers one at a time.
    """

    capture: str
    num_verify_steps: int
    num_captured_steps: int
    linear: str
    attention: str
    allreduce: str = "none"
    allreduces_per_step: float = 0.0
    fused_allreduces_per_step: float = 0.0
    accept_source: str = "engine loop"
    step: str = "verify"
    fusable_allreduces_per_step: float | None = None
    problem: str = ""
    cached_prompt_tokens: int = 0
    running_requests: float = 0.0

    @property
    def request_steps(self) -> int:
        """Verify steps of all requests: a step counts for each request in it."""
        return round(self.num_verify_steps * (self.running_requests or 1))

    @property
    def graph_share(self) -> float:
        """Share of verify steps that were replayed from a capture, 0 to 1."""
        return self.num_captured_steps / self.num_verify_steps if self.num_verify_steps else 0.0


class CompiledForward(Protocol):
    """A whole forward compiled ahead for this machine's CPU, sharing the model's cache.

    Attributes:
        ways: How it can sum over ranks, as in `Proof.allreduce`; the best unfused way first.
    """

    ways: tuple[str, ...]

    @property
    def sums(self) -> dict[str, int]:
        """Blocks that ended by each way to sum, as the compiled code counted them."""

    def summing(self, way: str) -> CompiledForward:
        """Return the same plan with another way to sum over ranks, and counts of its own.

        Raises:
            ValueError: The plan cannot sum so.
        """

    def join(
        self, delta: Tensor, residual: Tensor, weight: Tensor, times: int = 1
    ) -> tuple[Tensor, Tensor, float]:
        """End a block alone, `times` over.

        Returns:
            The norm and the residual with the sums, [W, H] float32, and the seconds.
        """

    def prefill(
        self, tokens: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Run [N] int64 tokens in order, each attending all before it.

        Returns:
            Logits, best and margin of the last row ([1, V], [1], [1]), and features of all rows.
        """

    def run(
        self, tokens: Tensor, positions: Tensor, mask: Tensor, start: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return logits, best, margin and features of a step's W rows, as in `StepOutput`.

        Arguments are those of `StepInput`: [W] int64 tokens and positions, [W, W] bool mask.
        """


class Join(Protocol):
    """Ends a block: sums the ranks' parts, adds the residual, norms; and counts what it ran.

    Attributes:
        allreduce: As in `Proof`; `none` on one rank.
        num_allreduces: All-reduces that were launched or recorded, fused ones included.
        num_fused: Of these, the ones that are one kernel with the residual add and the norm.
    """

    allreduce: str
    num_allreduces: int
    num_fused: int

    def __call__(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + sum of the ranks' deltas`, [W, H], and that sum."""


class TargetModel(Protocol):
    """A loaded target with its static key-value cache, batch 1.

    Attributes:
        device: Where weights and cache live.
        plan: The compiled forward, on a CPU with a C compiler.
        linear: Which matrix product the eager forward runs, with its weight format.
        attention: Which attention the eager forward runs.
        join: What ends each block.
        caches: Keys and values, [L, KV, S, D] each; one storage for the model's lifetime.
    """

    shape: TargetShape
    device: torch.device
    plan: CompiledForward | None
    linear: str
    attention: str
    join: Join
    caches: tuple[Tensor, Tensor]

    def with_join(self, join: Join) -> TargetModel:
        """Return the same weights and cache with another end of each block."""

    def forward(self, step: StepInput) -> StepOutput:
        """Run one eager forward over the step's rows and write their keys and values."""

    def forward_static(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor,
        start: Tensor,
        keys: Tensor,
        values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Run a forward whose shapes depend on the width alone, so that it can be captured.

        Args:
            tokens: [W] int64, like everything here on the model's device.
            positions: [W] int64.
            mask: [W, W] bool, as in `StepInput`.
            start: [] int64.
            keys: [L, KV, S, D], the cache's.
            values: [L, KV, S, D].

        Returns:
            logits, best and margin as in `StepOutput`, and features, [W, C * H] (C may be 0).
        """


class VerifyStep(Protocol):
    """A verify step ready to run; made once per cell by a backend."""

    def __call__(self, step: StepInput) -> StepOutput:
        """Run the target over root and draft tokens. A step of fixed width pads by itself."""

    @property
    def proof(self) -> Proof:
        """Counts since the step was built or last reset."""

    def reset_counts(self) -> None:
        """Forget the counts, so that warm-up does not prove anything."""

    def close(self) -> None:
        """Free what the step holds."""


class VerifyBackend(Protocol):
    """Settings of a verify backend; a frozen dataclass."""

    @property
    def name(self) -> str:
        """The backend's name in tables and tags."""

    @property
    def captures_verify(self) -> bool:
        """Whether verify steps are replayed from a capture, as the label has it."""

    @property
    def fuses_allreduce(self) -> bool:
        """Whether all-reduce, residual add and norm are one kernel, as the label has it."""

    def contradiction(self, proof: Proof) -> str | None:
        """Say how the proof contradicts the label, or None. A contradicted cell is void."""


@runtime_checkable
class BuildsStep(Protocol):
    """Ability: the torch engine can run this backend."""

    def build(self, model: TargetModel, width: int, threads: int) -> VerifyStep:
        """Make the step for up to `width` rows on `threads` CPU threads.

        Raises:
            ValueError: This model, width or machine cannot run the backend.
        """


@dataclass(frozen=True)
class ServerMode:
    """How a server is to run its forwards.

    Attributes:
        captures_decode: Plain decode and the drafter's forwards are replayed from graphs.
        captures_verify: Verify steps are too; implies `captures_decode`.
        allreduce: `auto` (the server's own choice without fusion), `nccl`, `custom` or `fused`.
    """

    captures_decode: bool
    captures_verify: bool
    allreduce: str = "auto"


@runtime_checkable
class ServesVerify(Protocol):
    """Ability: a server can run this backend."""

    def server_mode(self) -> ServerMode:
        """Say what the server must do; the engine turns it into arguments."""


@runtime_checkable
class NeedsRanks(Protocol):
    """Ability: the backend says how many ranks it needs at least."""

    @property
    def min_ranks(self) -> int:
        """Fewest tensor-parallel ranks."""
