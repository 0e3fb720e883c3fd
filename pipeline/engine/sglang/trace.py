"""A short profiler trace: which all-reduce really ran, counted in one target forward.

A log line says what was set up; only a kernel's name says what ran. Kernels belong to the forward
whose host-side span launched them, a whole graph at once or one by one.
"""

from __future__ import annotations

import gzip
import json
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, mode
from typing import Any

from verify.breakdown import Breakdown, Floor, Kernel, by_trace, is_communication

FUSED = ("allreduce_fusion_kernel",)
NCCL = ("ncclDevKernel_AllReduce", "ncclKernel_AllReduce")
CUSTOM = ("all_reduce_kernel", "cross_device_reduce")
POLL_S = 0.5


@dataclass(frozen=True)
class AllReduces:
    """What a target forward ran, by the median over the forwards of a trace.

    Attributes:
        forwards: Forwards that were looked at.
        requests: Requests that each of them served.
        kernels: Kernels in one.
        fused, nccl, custom: All-reduces of each kind in one.
        graph_share: Share of the forwards that were launched as one graph.
        breakdown: Where their time goes; the floor of communication is the fastest call seen.
    """

    forwards: int
    requests: int
    kernels: float
    fused: float
    nccl: float
    custom: float
    graph_share: float
    breakdown: Breakdown

    @property
    def total(self) -> float:
        """All-reduces of one forward."""
        return self.fused + self.nccl + self.custom

    @property
    def kind(self) -> str:
        """`fused` if any was, else what most were, `none` if there was none."""
        if self.fused:
            return "fused"
        if not self.total:
            return "none"
        return "nccl" if self.nccl >= self.custom else "custom"


def all_reduces(events: Sequence[dict[str, Any]], stage: str) -> AllReduces:
    """Count the all-reduces of a trace's target forwards, of those that serve most requests.

    While requests arrive, forwards are smaller than those that are measured.

    Args:
        events: `traceEvents` of one rank.
        stage: What the forwards' spans are called, as in `step[STAGE bs=1]`; `bs` is how many
            requests one serves.

    Raises:
        ValueError: No such forward is in the trace.
    """
    whole = [event for event in events if event.get("ph") == "X"]
    kernels = _by_launch(e for e in whole if e.get("cat") == "kernel")
    launches = [e for e in whole if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    by_requests: dict[int, list[_Forward]] = {}
    for requests, span in _spans(whole, stage):
        if found := _launched(span, launches, kernels):
            by_requests.setdefault(requests, []).append(found)
    if not by_requests:
        raise ValueError(f"no forward named step[{stage} …] is in the trace")
    requests, forwards = max(by_requests.items())
    usual = mode(len(forward.names) for forward in forwards)
    complete = [forward for forward in forwards if len(forward.names) == usual]
    return AllReduces(
        forwards=len(complete),
        requests=requests,
        kernels=usual,
        fused=median(_count(f.names, FUSED) for f in complete),
        nccl=median(_count(f.names, NCCL) for f in complete),
        custom=median(_count(f.names, CUSTOM) for f in complete),
        graph_share=sum(f.graph for f in complete) / len(complete),
        breakdown=_breakdown(complete),
    )


def wait_for_trace(folder: Path, timeout_s: float) -> list[dict[str, Any]]:
    """Return the events of the first rank's trace once it is whole.

    Raises:
        TimeoutError: None came.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for path in sorted(folder.rglob("*TP-0*.trace.json.gz")):
            try:
                with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
                    return list(json.load(file)["traceEvents"])
            except (EOFError, OSError, ValueError, zlib.error):
                continue  # still being written
        time.sleep(POLL_S)
    raise TimeoutError(f"the profiler wrote no trace to {folder} within {timeout_s:g} s")


@dataclass(frozen=True)
class _Forward:
    """Kernels of one forward, and whether one graph launched most of them."""

    kernels: tuple[Kernel, ...]
    graph: bool

    @property
    def names(self) -> list[str]:
        """The kernels' names."""
        return [kernel.name for kernel in self.kernels]


def _breakdown(forwards: Sequence[_Forward]) -> Breakdown:
    """Return where the time of equal forwards goes, a mean over them."""
    kernels = [kernel for forward in forwards for kernel in forward.kernels]
    calls = [k.end - k.begin for k in kernels if is_communication(k.name)]
    floor = Floor(round(len(calls) / len(forwards)), min(calls, default=0.0))
    return by_trace(kernels, len(forwards), floor)


def _spans(events: Iterable[dict[str, Any]], stage: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield a stage's spans, each with the requests that it serves."""
    pattern = re.compile(rf"step\[{re.escape(stage)} bs=(\d+)")
    for event in events:
        if event.get("cat") == "user_annotation" and (found := pattern.match(event["name"])):
            yield int(found.group(1)), event


def _by_launch(kernels: Iterable[dict[str, Any]]) -> dict[int, list[Kernel]]:
    """Group kernels by the launch that they came from."""
    out: dict[int, list[Kernel]] = {}
    for event in kernels:
        kernel = Kernel(event["name"], event["ts"], event["ts"] + event["dur"])
        out.setdefault(event.get("args", {}).get("correlation", -1), []).append(kernel)
    return out


def _launched(
    span: dict[str, Any], launches: Sequence[dict[str, Any]], kernels: dict[int, list[Kernel]]
) -> _Forward | None:
    """Return the kernels that a span launched, None if none of them was recorded."""
    begin, end = span["ts"], span["ts"] + span["dur"]
    inside = [
        e
        for e in launches
        if (e["pid"], e["tid"]) == (span["pid"], span["tid"]) and begin <= e["ts"] < end
    ]
    groups = [kernels.get(e.get("args", {}).get("correlation", -2), []) for e in inside]
    found = tuple(kernel for group in groups for kernel in group)
    if not found:
        return None
    graphs = sum(len(g) for e, g in zip(inside, groups, strict=True) if "GraphLaunch" in e["name"])
    return _Forward(found, graphs * 2 > len(found))


def _count(names: Iterable[str], kinds: Sequence[str]) -> int:
    """Count the names that contain one of the kinds; a fused kernel is no plain one."""
    plain = kinds is not FUSED
    return sum(
        any(kind in name for kind in kinds) and not (plain and any(f in name for f in FUSED))
        for name in names
    )
