"""Where a verify step's time goes: verify_ms = compute + wire + wait + launch.

Compute is every kernel that is no communication; wire is the all-reduces' own floor at this
message size; wait is what they spin beyond it, for a rank that is late; launch is the time in
which the device is idle because nothing was launched yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import NamedTuple

# Kernels whose time is communication, by the beginnings of the names that NCCL, SGLang,
# FlashInfer, vLLM and this project give them.
COMMUNICATION = (
    "nccl",
    "all_reduce",
    "allreduce",
    "cross_device_reduce",
    "one_shot",
    "two_shot",
    "oneShot",
    "twoShot",
)


class Kernel(NamedTuple):
    """One kernel or copy on the device, from a trace; times in microseconds."""

    name: str
    begin: float
    end: float


class Floor(NamedTuple):
    """What a step's all-reduces cost when nobody is late.

    Attributes:
        calls: All-reduces of a step.
        call_us: One of them, captured, at the step's message size.
        norm_us: The part of a fused one that is residual add and norm, not communication.
    """

    calls: int
    call_us: float
    norm_us: float = 0.0

    @property
    def wire_ms(self) -> float:
        """The floor of a step's communication."""
        return self.calls * (self.call_us - self.norm_us) / 1e3


@dataclass(frozen=True)
class Breakdown:
    """The parts of verify_ms, in ms."""

    compute: float
    wire: float
    wait: float
    launch: float

    @property
    def total(self) -> float:
        """The whole step."""
        return self.compute + self.wire + self.wait + self.launch

    def unslowed(self, total_ms: float) -> Breakdown:
        """Return a traced step's parts without what the profiler itself took.

        A profiler works on the host at every launch, so it widens gaps, and makes ranks late, and
        nothing else: these are at most what the other kernels leave of the step that nobody traced.

        Args:
            total_ms: The same step, untraced.
        """
        left = max(0.0, total_ms - self.compute - self.wire)
        wait = min(self.wait, left)
        return replace(self, wait=wait, launch=min(self.launch, left - wait))


def by_trace(kernels: Sequence[Kernel], num_steps: int, floor: Floor) -> Breakdown:
    """Return the parts from what ran on one device, a mean over steps.

    Kernels may overlap: one that starts early waits for the one before, so its own time begins
    where that one ends. A step begins with its first kernel: the copy of its input runs while the
    host still hands over the graph, and a profiler makes that slow.

    Args:
        kernels: All of `num_steps` steps, and equally many in each.
        num_steps: Steps in the trace.
        floor: The all-reduces alone.

    Raises:
        ValueError: The kernels do not divide into the steps.
    """
    if not kernels or len(kernels) % num_steps:
        raise ValueError(f"{len(kernels)} kernels do not divide into {num_steps} equal steps")
    ordered = sorted(kernels, key=lambda kernel: (kernel.begin, kernel.end))
    size = len(ordered) // num_steps
    computing = communicating = idle = 0.0
    for first in range(0, len(ordered), size):
        step = list(dropwhile(_is_copy, ordered[first : first + size]))
        done = step[0].begin
        for kernel in step:
            idle += max(0.0, kernel.begin - done)
            own = max(0.0, kernel.end - max(kernel.begin, done))
            if is_communication(kernel.name):
                communicating += own
            else:
                computing += own
            done = max(done, kernel.end)
    norms = floor.calls * floor.norm_us / 1e3
    communication = communicating / num_steps / 1e3 - norms
    wire = min(floor.wire_ms, communication)
    compute = computing / num_steps / 1e3 + norms
    return Breakdown(compute, wire, communication - wire, idle / num_steps / 1e3)


def is_communication(name: str) -> bool:
    """Whether a kernel's name says that it sums over ranks or gathers from them."""
    return any(part in name for part in COMMUNICATION)


def _is_copy(kernel: Kernel) -> bool:
    return kernel.name.startswith(("Memcpy", "Memset"))
