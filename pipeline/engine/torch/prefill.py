"""Prefill: the prompt's forward. Every verify backend shares it, since it is not what they vary."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from verify.base import StepInput, StepOutput

# Rows of one eager prefill forward: a [rows, slots] mask and logits stay small.
CHUNK = 512
# Reads a prompt into an empty cache; returns what the two functions below do.
Prefill = Callable[[Sequence[int]], StepOutput]
_Planned = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor | None]]


def eager_prefill(forward: Callable[[StepInput], StepOutput], tokens: Sequence[int]) -> StepOutput:
    """Read a prompt from slot 0 on by a model's eager forward, in chunks.

    Returns:
        The last row's logits, best and margin ([1, V], [1], [1]), and the features of every row.
    """
    features = []
    for start in range(0, len(tokens), CHUNK):
        chunk = torch.tensor(tokens[start : start + CHUNK])
        mask = torch.ones(len(chunk), len(chunk), dtype=torch.bool).tril()
        out = forward(StepInput(chunk, torch.arange(len(chunk)) + start, mask, start))
        if out.features is not None:
            features.append(out.features)
    every = torch.cat(features) if features else None
    return StepOutput(out.logits[-1:], out.best[-1:], out.margin[-1:], every, out.device_ms)


def planned_prefill(prefill: _Planned, tokens: Sequence[int]) -> StepOutput:
    """Read a prompt from slot 0 on by a plan's `prefill`; return what `eager_prefill` does."""
    began = time.perf_counter()
    out = prefill(torch.tensor(tokens), torch.arange(len(tokens)))
    return StepOutput(*out, (time.perf_counter() - began) * 1e3)
