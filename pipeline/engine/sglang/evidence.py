"""What a server did, gathered while it runs; it becomes the cell's proof."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pipeline.engine.sglang.arguments import ServerArguments, graph_sizes
from pipeline.engine.sglang.counts import (
    Records,
    Reply,
    StepRecord,
    cached_tokens,
    retractions,
    timer_disagreement,
)
from pipeline.engine.sglang.gpus import gpus
from pipeline.engine.sglang.model import model_facts
from pipeline.engine.sglang.trace import AllReduces
from pipeline.engine.sglang.versions import fusable
from verify.base import Proof

if TYPE_CHECKING:
    from pipeline.cell.cell import Cell

# What SGLang computes in when it is asked for `auto`, by the checkpoint's own type.
_AUTO_DTYPE = {"float32": "float16", "float16": "float16", "bfloat16": "bfloat16"}


class Evidence:
    """Steps, cache hits and traces of one server.

    Attributes:
        trace: All-reduces of a target forward; None on one rank.
    """

    def __init__(self, cell: Cell, arguments: ServerArguments, info: dict[str, Any]) -> None:
        """Keep the settings that the server reports (`/server_info`)."""
        self._cell, self._arguments, self._info = cell, arguments, info
        self._mode = "decode" if cell.is_baseline else "target_verify"
        self.trace: AllReduces | None = None
        self.begin({})

    def begin(self, seconds: dict[str, float]) -> None:
        """Forget all; warm-up proves nothing.

        Args:
            seconds: SGLang's device timer now.
        """
        self._timer = seconds.get(self._mode, 0.0)
        self._steps: list[StepRecord] = []
        self._cached = self._retracted = self._largest_batch = 0

    def add(self, answers: Sequence[Reply], records: Records) -> None:
        """Count what was answered and the steps that did it."""
        self._steps += [step for step in records.steps if step.mode == self._mode]
        self._cached += cached_tokens(answers)
        self._retracted += retractions(answers)
        batches = (step.batch for step in records.steps)
        self._largest_batch = max(self._largest_batch, max(batches, default=0))

    def proof(self, seconds: dict[str, float], fusion_failure: str) -> Proof:
        """Return what is proven so far.

        Args:
            seconds: SGLang's device timer now.
            fusion_failure: The server's own line that it gave up fusing, if any.
        """
        captured, trace = sum(step.graph for step in self._steps), self.trace
        return Proof(
            capture="cuda_graph" if captured else "none",
            num_verify_steps=len(self._steps),
            num_captured_steps=captured,
            linear=f"SGLang's, {self._dtype}, quantization {self._info.get('quantization')}",
            attention=f"{self._info.get('attention_backend')}, pages of"
            f" {self._info.get('page_size')} tokens",
            allreduce=trace.kind if trace else "none",
            allreduces_per_step=trace.total if trace else 0.0,
            fused_allreduces_per_step=trace.fused if trace else 0.0,
            accept_source="the plugin's steps, equal to the counts of meta_info",
            step="decode" if self._cell.is_baseline else "verify",
            fusable_allreduces_per_step=self._fusable(),
            problem=self._problem(seconds, fusion_failure),
            cached_prompt_tokens=self._cached,
            running_requests=fmean(step.batch for step in self._steps) if self._steps else 0.0,
        )

    def settings(self) -> dict[str, str]:
        """Return what the server resolved."""
        names = sorted({gpu.name for gpu in gpus()}) or ["unknown"]
        sizes = graph_sizes(self._arguments.batch) if self._arguments.mode.captures_decode else []
        out = {
            "device": f"{self._arguments.tp} x {', '.join(names)}",
            "dtype": self._dtype,
            "attention": str(self._info.get("attention_backend")),
            "page_size": str(self._info.get("page_size")),
            "captured_batches": ",".join(map(str, sizes)) or "none",
            "weights": "random" if self._arguments.engine.load_format == "dummy" else "loaded",
        }
        if self.trace is not None:
            found = self.trace
            out["breakdown"] = json.dumps(asdict(found.breakdown))
            out["trace"] = (
                f"{found.kernels:g} kernels a forward, all-reduces: {found.fused:g} fused,"
                f" {found.custom:g} custom, {found.nccl:g} nccl; {found.forwards} forwards of"
                f" {found.requests} requests, {found.graph_share:.0%} as a graph"
            )
        return out

    @property
    def _dtype(self) -> str:
        """What the target computes in."""
        dtype = str(self._info.get("dtype") or "auto")
        if dtype != "auto":
            return dtype
        facts = model_facts(self._arguments.model, self._arguments.revision)
        return _AUTO_DTYPE.get(facts.dtype if facts else "", "bfloat16")

    def _fusable(self) -> float | None:
        """Return how many all-reduces this architecture offers; what was seen where unmeasured."""
        if self._arguments.mode.allreduce != "fused" or self.trace is None:
            return None
        facts = model_facts(self._arguments.model, self._arguments.revision)
        known = fusable(facts.architecture, facts.num_layers) if facts else None
        return self.trace.fused if known is None else known

    def _problem(self, seconds: dict[str, float], fusion_failure: str) -> str:
        """Say what makes the cell's figures wrong, or ""."""
        if self._cached:
            return f"{self._cached} prompt tokens came from the cache instead of being computed"
        if self._retracted:
            return f"the server ran out of cache and began {self._retracted} requests again"
        if self._largest_batch > self._arguments.batch:
            return f"{self._largest_batch} requests ran at once, {self._arguments.batch} were asked"
        if self._steps and not self._cell.is_baseline and not any(s.draft_ms for s in self._steps):
            return "the plugin saw no time of the drafter: its hooks do not fit this SGLang"
        mode = self._arguments.mode
        if mode.allreduce == "fused" and fusion_failure:
            return f"the server gave up fusing: {fusion_failure}"
        if mode.allreduce != "fused" and self.trace and self.trace.fused:
            return f"{self.trace.fused:g} all-reduces a step were fused without being asked for"
        gained = seconds.get(self._mode, 0.0) - self._timer
        return self._traced_otherwise() or timer_disagreement(self._steps, gained)

    def _traced_otherwise(self) -> str:
        """Say that the profiler saw forwards launched in another way than most steps, or ""."""
        if self.trace is None or not self._steps:
            return ""
        share = sum(step.graph for step in self._steps) / len(self._steps)
        if (share > 0.5) == (self.trace.graph_share > 0.5):
            return ""
        return (
            f"{share:.0%} of the steps count as captured, but a trace shows"
            f" {self.trace.graph_share:.0%} of the forwards launched as a graph"
        )
