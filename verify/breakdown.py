"""Where a verify step's time goes: verify_ms = compute + wire + wait + launch, by two methods.

Compute is every kernel that is no communication; wire is the all-reduces' own floor at this
message size; wait is what they spin beyond it, for a rank that is late; launch is the time in
which the device is idle because nothing was launched yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import NamedTuple

PARTS = ("compute", "wire", "wait", "launch")
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

    def furthest(self, other: Breakdown) -> float:
        """Return the largest difference of any part, each as a share of its own step."""
        shares = (
            abs(getattr(self, part) / self.total - getattr(other, part) / other.total)
            for part in PARTS
        )
        return float(max(shares))

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


def by_ablation(
    total_ms: float, silent_ms: float, silent_captured_ms: float, floor: Floor
) -> Breakdown:
    """Return the parts from steps that leave something out.

    Args:
        total_ms: The step.
        silent_ms: The same step without communication, but with what the host does for it.
        silent_captured_ms: The same without communication and captured: nothing to launch.
        floor: The all-reduces alone. Without any there is nobody to wait for, and the step without
            communication is the step.
    """
    if not floor.calls:
        return Breakdown(silent_captured_ms, 0.0, 0.0, total_ms - silent_captured_ms)
    launch = max(0.0, silent_ms - silent_captured_ms)
    wait = total_ms - silent_ms - floor.wire_ms
    # A step that waits for its host hides communication in the gaps between launches.
    return Breakdown(silent_captured_ms, floor.wire_ms, max(0.0, wait), launch + min(0.0, wait))


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
        step = list(dropwhile(is_copy, ordered[first : first + size]))
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


def is_copy(kernel: Kernel) -> bool:
    """Whether this is a copy and no kernel."""
    return kernel.name.startswith(("Memcpy", "Memset"))


def is_communication(name: str) -> bool:
    """Whether a kernel's name says that it sums over ranks or gathers from them."""
    return any(part in name for part in COMMUNICATION)


def classes(kernels: Sequence[Kernel], num_steps: int) -> dict[str, tuple[float, float]]:
    """Return calls and own microseconds of each kernel name in a step, the costliest first."""
    found: dict[str, tuple[float, float]] = {}
    done = 0.0
    for kernel in sorted(kernels, key=lambda kernel: (kernel.begin, kernel.end)):
        calls, spent = found.get(kernel.name, (0.0, 0.0))
        own = max(0.0, kernel.end - max(kernel.begin, done))
        found[kernel.name] = (calls + 1 / num_steps, spent + own / num_steps)
        done = max(done, kernel.end)
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))
