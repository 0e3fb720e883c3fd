"""Time a forward on its device: events on a GPU, the wall clock on a CPU."""

from __future__ import annotations

import time

import torch


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
