"""Prefill: the prompt's forward. Every verify backend shares it, since it is not what they vary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from verify.base import StepInput, StepOutput
from verify.native.plan import PlanOutput

# Rows of one eager prefill forward: a [rows, slots] mask and logits stay small.
CHUNK = 512


class Prefill(Protocol):
    """Reads a prompt into an empty cache."""

    def __call__(self, tokens: Sequence[int]) -> StepOutput:
        """Return the last row's logits, best and margin, and the features of every row."""


class Forwards(Protocol):
    """A model's eager forward, on one rank or on several."""

    def forward(self, step: StepInput) -> StepOutput:
        """Run the step's rows and write their keys and values."""


class ReadsPrompts(Protocol):
    """A compiled forward, on one rank or on several."""

    def prefill(self, tokens: Tensor, positions: Tensor) -> PlanOutput:
        """Run the rows in order, each attending all before it."""


class EagerPrefill:
    """Prefill by the model's eager forward, in chunks."""

    def __init__(self, model: Forwards) -> None:
        """Bind the model."""
        self._model = model

    def __call__(self, tokens: Sequence[int]) -> StepOutput:
        """Read the prompt from slot 0 on."""
        features = []
        for start in range(0, len(tokens), CHUNK):
            chunk = torch.tensor(tokens[start : start + CHUNK])
            mask = torch.ones(len(chunk), len(chunk), dtype=torch.bool).tril()
            out = self._model.forward(
                StepInput(chunk, torch.arange(len(chunk)) + start, mask, start)
            )
            features.append(out.features)
        kept = [part for part in features if part is not None]
        return StepOutput(
            out.logits[-1:],
            out.best[-1:],
            out.margin[-1:],
            torch.cat(kept) if kept else None,
            out.device_ms,
        )


class PlannedPrefill:
    """Prefill by the compiled forward."""

    def __init__(self, plan: ReadsPrompts) -> None:
        """Bind the plan."""
        self._plan = plan

    def __call__(self, tokens: Sequence[int]) -> StepOutput:
        """Read the prompt from slot 0 on."""
        began = time.perf_counter()
        logits, best, margin, features = self._plan.prefill(
            torch.tensor(tokens), torch.arange(len(tokens))
        )
        return StepOutput(logits, best, margin, features, (time.perf_counter() - began) * 1e3)
