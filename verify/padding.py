"""Pad a step to a fixed width, so that no ragged draft falls out of a capture."""

from __future__ import annotations

import torch

from verify.base import StepInput, StepOutput


def pad(step: StepInput, width: int) -> StepInput:
    """Return the step with rows added up to `width`.

    Added rows repeat the root and attend themselves alone beyond the committed slots; what they
    write lies past the step's own rows and is overwritten by the next step.

    Raises:
        ValueError: The step is wider than the capture.
    """
    num_rows = len(step.tokens)
    if num_rows > width:
        raise ValueError(f"a step of {num_rows} rows does not fit a capture of width {width}")
    if num_rows == width:
        return step
    extra = width - num_rows
    mask = torch.eye(width, dtype=torch.bool)
    mask[:num_rows, :num_rows] = step.mask
    return StepInput(
        torch.cat((step.tokens, step.tokens[:1].expand(extra))),
        torch.cat((step.positions, step.positions[:1].expand(extra))),
        mask,
        step.start,
    )


def unpad(out: StepOutput, num_rows: int) -> StepOutput:
    """Return the first `num_rows` rows of a padded step's output."""
    features = None if out.features is None else out.features[:num_rows]
    return StepOutput(
        out.logits[:num_rows], out.best[:num_rows], out.margin[:num_rows], features, out.device_ms
    )
