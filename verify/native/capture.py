"""Captured steps on a CPU: one call of compiled code, or a frozen trace where none can be built."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from verify.base import CompiledForward, Proof, StepInput, StepOutput, TargetModel
from verify.step import pad

Replay = Callable[[StepInput], tuple[Tensor, Tensor, Tensor, Tensor | None]]


class _CapturedStep:
    """Pads a step to its fixed width, replays the capture, and counts."""

    def __init__(self, replay: Replay, width: int, *names: str) -> None:
        """Bind the replay; `names` are capture, linear and attention of the proof."""
        self._replay, self._width, self._names = replay, width, names
        self.reset_counts()

    def __call__(self, step: StepInput) -> StepOutput:
        """Replay the capture over the step's rows, padded."""
        self._num_steps += 1
        began = time.perf_counter()
        logits, best, margin, features = self._replay(pad(step, self._width))
        ms, rows = (time.perf_counter() - began) * 1e3, slice(len(step.tokens))
        features = None if features is None else features[rows]
        return StepOutput(logits[rows], best[rows], margin[rows], features, ms)

    @property
    def proof(self) -> Proof:
        """Every step was a replay: there is no other way through this class."""
        capture, linear, attention = self._names
        return Proof(capture, self._num_steps, self._num_steps, linear, attention)

    def reset_counts(self) -> None:
        """Start counting at zero."""
        self._num_steps = 0

    def close(self) -> None:
        """Hold nothing beyond memory."""


class PlannedStep(_CapturedStep):
    """The whole step in one call of compiled code, sums over ranks included."""

    def __init__(self, model: TargetModel, plan: CompiledForward, width: int) -> None:
        """Bind the plan, which shares the model's cache and sums in its own way."""
        self._plan, self._num_layers = plan, model.shape.num_layers
        super().__init__(
            lambda step: plan.run(*step),
            width,
            "native_plan",
            model.linear,
            "native, over the slots in use",
        )

    @property
    def proof(self) -> Proof:
        """What the compiled code counted: two blocks a layer end in each step."""
        proof, sums = super().proof, self._sums()
        if not sums:
            return proof
        wanted, ran = 2 * self._num_layers * proof.num_verify_steps, sum(sums.values())
        each = 1 / max(proof.num_verify_steps, 1)
        return replace(
            proof,
            allreduce="+".join(sums),
            allreduces_per_step=ran * each,
            fused_allreduces_per_step=sums.get("fused", 0) * each,
            problem="" if ran == wanted else f"{ran} of {wanted} sums over ranks ran in the step",
        )

    def reset_counts(self) -> None:
        """Start counting at zero."""
        super().reset_counts()
        self._before = self._plan.sums

    def _sums(self) -> dict[str, int]:
        """Return how many sums over ranks ran each way since the last reset."""
        ran = {way: count - self._before[way] for way, count in self._plan.sums.items()}
        return {way: count for way, count in ran.items() if count and way != "none"}


class TracedStep(_CapturedStep):
    """The static forward as a frozen TorchScript trace: no Python, but torch's dispatcher."""

    def __init__(self, model: TargetModel, width: int) -> None:
        """Trace the forward at `width` rows.

        Raises:
            ValueError: Several ranks share the model: a trace would leave out their all-reduces.
        """
        if model.join.allreduce != "none":
            raise ValueError(
                f"verify=graph_captured: a CPU trace cannot hold {model.join.allreduce}'s"
                " all-reduces, and the compiled step that can needs a C compiler,"
                " engine.native=auto and a target in packed blocks (GGUF); use verify=extend"
            )
        caches = model.caches
        example = (
            torch.zeros(width, dtype=torch.int64),
            torch.arange(width),
            torch.ones(width, width, dtype=torch.bool).tril(),
            torch.tensor(0),
        )
        # Deprecated in favour of compilers; this step exists for machines that have none.
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning
            )
            traced = torch.jit.trace(_Static(model).eval(), (*example, *caches), check_trace=False)
            frozen = torch.jit.freeze(traced)

        def replay(step: StepInput) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
            with torch.inference_mode():
                out: tuple[Tensor, Tensor, Tensor, Tensor] = frozen(
                    *step[:3], torch.tensor(step.start), *caches
                )
            return out

        attention = "torch scaled_dot_product_attention over the whole cache"
        super().__init__(replay, width, "jit_trace", model.linear, attention)


class _Static(nn.Module):
    """The static forward as a module, which is what a trace is made of."""

    def __init__(self, model: TargetModel) -> None:
        super().__init__()
        self._forward = model.forward_static

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self._forward(*tensors)
