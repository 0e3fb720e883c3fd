"""What every way to run a step needs: rows padded to a fixed width, and the time on its device."""

from __future__ import annotations

import time

import torch

from verify.base import StepInput


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


class DeviceTimer:
    """A stopwatch for one device; reuse it, since making CUDA events costs host time."""

    def __init__(self, device: torch.device) -> None:
        """Prepare the events."""
        self._cuda = device.type == "cuda"
        if self._cuda:
            self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._began = 0.0

    def start(self) -> None:
        """Mark the beginning."""
        if self._cuda:
            self._events[0].record()
        else:
            self._began = time.perf_counter()

    def stop(self) -> None:
        """Mark the end; on a GPU this does not wait."""
        if self._cuda:
            self._events[1].record()
        else:
            self._ms = (time.perf_counter() - self._began) * 1e3

    def ms(self) -> float:
        """Return the time between the marks; on a GPU this waits for the end mark."""
        if self._cuda:
            self._events[1].synchronize()
            return float(self._events[0].elapsed_time(self._events[1]))
        return self._ms
