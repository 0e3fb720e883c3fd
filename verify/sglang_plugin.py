"""SGLang's general plugin: eager verify steps, the fused gate of SM120, a clock for every step.

With random weights it also makes experts spread as they do in text: see `ordinary_weights`.

Loaded by SGLang itself in each of its processes (entry-point group `sglang.srt.plugins`) and inert
unless the server was started by our engine, which sets the variables below. It stands alone in one
file and imports SGLang and torch when it is activated, so that it can be copied beside any server.

A step's record: when the scheduler had its result, how many tokens each request got from it, and
the device time of its forwards. `/flush_cache` writes the records since the last flush.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "SPECROI_SGLANG_FOLDER"  # where the records go; without it the plugin is inert
DRAFTER = "SPECROI_SGLANG_DRAFTER"  # `ngram`, or `model` for one with weights; absent for none
EAGER_VERIFY = "SPECROI_SGLANG_EAGER_VERIFY"
SM120_FUSION = "SPECROI_SGLANG_SM120_FUSION"
RANDOM_WEIGHTS = "SPECROI_SGLANG_RANDOM_WEIGHTS"
VERSION = "SPECROI_SGLANG_VERSION"
RECORDS = "steps.json"
ANNOUNCEMENT = "specroi plugin active:"

_SRT = "sglang.srt"
_PROCESSOR = f"{_SRT}.managers.scheduler_components.batch_result_processor"
_PROCESSOR += ".SchedulerBatchResultProcessor"
_EAGLE = f"{_SRT}.speculative.eagle_worker_v2.EagleDraftWorker"
_CORPUS = f"{_SRT}.speculative.cpp_ngram.ngram_corpus.NgramCorpus"
_DUMMY = f"{_SRT}.model_loader.loader.initialize_dummy_weights"
_DUMMY_BOUND = 1e-3  # SGLang draws random weights between minus and plus this
_TOKENS = (3, 1000)  # any vocabulary has these
_RESOLVE = f"{_SRT}.layers.flashinfer_comm_fusion._resolve_backend"
# The function that decides call by call whether the fused kernel runs.
FUSION_GATE = {
    "0.5.17": f"{_SRT}.layers.communicator.apply_flashinfer_allreduce_fusion",
    "0.5.23": f"{_SRT}.layers.layer_boundary.residual.add_norm.flashinfer_ar_fusion_applies",
}

_LOG = logging.getLogger(__name__)
Hook = Callable[..., Any]


class _Span:
    """Device time between two marks on the current stream."""

    def __init__(self) -> None:
        """Mark the beginning."""
        import torch

        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._events[0].record()

    def end(self) -> _Span:
        """Mark the end; waits for nothing."""
        self._events[1].record()
        return self

    def ms(self) -> float:
        """Return the time between the marks; waits for the end mark."""
        self._events[1].synchronize()
        return float(self._events[0].elapsed_time(self._events[1]))


@dataclass
class _Step:
    """One decode batch: its forwards as launched, and its result as it came back."""

    mode: str
    batch: int
    graph: bool
    verify: _Span
    draft: list[_Span]
    lookup_ms: float
    at_s: float = 0.0
    committed: dict[str, int] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "mode": self.mode,
            "batch": self.batch,
            "graph": self.graph,
            "verify_ms": self.verify.ms(),
            "draft_ms": sum(span.ms() for span in self.draft) + self.lookup_ms,
            "at_s": self.at_s,
            "committed": self.committed,
        }


class Recorder:
    """Collects the steps of a scheduler; results come back in the order of the launches."""

    def __init__(self, folder: Path, span: Callable[[], _Span] = _Span) -> None:
        """Write to `folder`; `span` starts a clock on the device."""
        self._folder, self._span, self._flushes = folder, span, 0
        self.reset()

    def reset(self) -> None:
        """Forget all steps."""
        self._steps: list[_Step] = []
        self._returned = 0
        self._first: dict[str, float] = {}
        self._draft: list[_Span] = []
        self._lookup_ms = 0.0

    def forward(self, original: Hook, runner: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Time a target forward; what the drafter did before it belongs to the same step."""
        mode = batch.forward_mode
        if runner.is_draft_worker or not (mode.is_target_verify() or mode.is_decode()):
            return original(runner, batch, *args, **kwargs)
        span = self._span()
        out = original(runner, batch, *args, **kwargs)
        step = _Step(
            mode=mode.name.lower(),
            batch=int(batch.batch_size),
            graph=bool(out.can_run_graph),
            verify=span.end(),
            draft=self._draft,
            lookup_ms=self._lookup_ms,
        )
        self._steps.append(step)
        self._draft, self._lookup_ms = [], 0.0
        return out

    def draft(self, original: Hook, *args: Any, **kwargs: Any) -> Any:
        """Time the drafter before its verify step."""
        span = self._span()
        out = original(*args, **kwargs)
        self._draft.append(span.end())
        return out

    def draft_extend(self, original: Hook, *args: Any, **kwargs: Any) -> Any:
        """Time the drafter reading what was accepted; it belongs to the step just launched."""
        span = self._span()
        out = original(*args, **kwargs)
        if self._steps:
            self._steps[-1].draft.append(span.end())
        return out

    def lookup(self, original: Hook, *args: Any, **kwargs: Any) -> Any:
        """Time the n-gram index, which is host work."""
        began = time.perf_counter()
        out = original(*args, **kwargs)
        self._lookup_ms += (time.perf_counter() - began) * 1e3
        return out

    def prefilled(
        self, original: Hook, processor: Any, batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Note when each request had its first token."""
        out = original(processor, batch, *args, **kwargs)
        now = time.perf_counter()
        for request in batch.reqs:
            if len(request.output_ids):
                self._first.setdefault(request.rid, now)
        return out

    def decoded(self, original: Hook, processor: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Note what each request got from the oldest step that is still out."""
        before = [(request, len(request.output_ids)) for request in batch.reqs]
        out = original(processor, batch, *args, **kwargs)
        if self._returned < len(self._steps):
            step = self._steps[self._returned]
            step.at_s = time.perf_counter()
            grown = ((r.rid, len(r.output_ids) - length) for r, length in before)
            step.committed = {rid: count for rid, count in grown if count > 0}
        self._returned += 1
        return out

    def flushed(self, original: Hook, *args: Any, **kwargs: Any) -> Any:
        """Write the steps since the last flush, when SGLang agrees that nothing runs."""
        out = original(*args, **kwargs)
        if out:
            if _is_first_rank():
                self._write()
            self.reset()
        return out

    def _write(self) -> None:
        """Replace the file of records."""
        self._flushes += 1
        steps = self._steps[: self._returned]
        records = {
            "flush": self._flushes,
            "pid": os.getpid(),
            "lost": abs(len(self._steps) - self._returned),
            "first_s": self._first,
            "steps": [step.plain() for step in steps],
        }
        partial = self._folder / f"{RECORDS}.partial"
        partial.write_text(json.dumps(records))
        partial.replace(self._folder / RECORDS)


def activate() -> None:
    """Register the hooks; SGLang calls this in each of its processes."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    hooks = _recording(Recorder(Path(folder)), os.environ.get(DRAFTER, ""))
    if os.environ.get(EAGER_VERIFY) == "1":
        runner = f"{_SRT}.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner"
        hooks[f"{runner}.can_run_graph"] = eager_verify
    if os.environ.get(SM120_FUSION) == "1":
        hooks[_RESOLVE] = resolve_on_sm120
        hooks[FUSION_GATE[os.environ[VERSION]]] = applies_on_sm120
    if os.environ.get(RANDOM_WEIGHTS) == "1":
        hooks[_DUMMY] = ordinary_weights
        if lookup := hooks.get(f"{_CORPUS}.batch_get"):
            hooks[f"{_CORPUS}.batch_get"] = random_drafts(lookup)
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for target, hook in hooks.items():
        HookRegistry.register(target, hook, HookType.AROUND)
    names = ", ".join(sorted({getattr(hook, "__name__", "hook") for hook in hooks.values()}))
    _LOG.warning("%s %s", ANNOUNCEMENT, names)  # a warning, so that no log level hides it


def _recording(recorder: Recorder, drafter: str) -> dict[str, Hook]:
    """Return the hooks that only watch; a drafter's modules are imported only where it runs."""
    drafting: dict[str, dict[str, Hook]] = {
        "model": {
            f"{_EAGLE}.draft": recorder.draft,
            f"{_EAGLE}._draft_extend_for_decode": recorder.draft_extend,
        },
        "ngram": {
            f"{_CORPUS}.batch_get": recorder.lookup,
            f"{_CORPUS}.batch_put": recorder.lookup,
        },
    }
    return {
        f"{_SRT}.model_executor.model_runner.ModelRunner.forward": recorder.forward,
        f"{_PROCESSOR}.process_batch_result_prefill": recorder.prefilled,
        f"{_PROCESSOR}.process_batch_result_decode": recorder.decoded,
        f"{_SRT}.managers.scheduler.Scheduler.flush_cache": recorder.flushed,
        **drafting.get(drafter, {}),
    }


def eager_verify(original: Hook, runner: Any, batch: Any) -> Any:
    """Keep verify steps out of the captured graph; plain decode and the drafter stay in theirs."""
    return False if batch.forward_mode.is_target_verify() else original(runner, batch)


def resolve_on_sm120(original: Hook, backend: str, is_multi_node: bool = False) -> Any:
    """Let SM120 have the kernel of one node, which needs no NVLink multicast."""
    if backend == "trtllm" and not is_multi_node and _is_sm120():
        return backend
    return original(backend, is_multi_node)


def applies_on_sm120(original: Hook, *args: Any, **kwargs: Any) -> Any:
    """Count SM120 as SM90 in this one decision; the flag is private to its module."""
    if _is_sm120():
        sys.modules[original.__module__]._is_sm90_supported = True  # type: ignore[attr-defined]
    return original(*args, **kwargs)


def ordinary_weights(original: Hook, model: Any, *args: Any, **kwargs: Any) -> Any:
    """Give random weights the size of trained ones.

    SGLang's own are so small that a router's bias outweighs its input: every token visits the same
    experts, and a wide step looks as cheap as a narrow one.
    """
    out = original(model, *args, **kwargs)
    for name, weight in model.state_dict().items():
        if not weight.is_floating_point() or weight.element_size() < 2:
            continue
        if weight.dim() < 2:
            weight.fill_(float(name.endswith("weight")))  # norms; the rest are biases
        else:
            columns = 1 if "embed" in name else weight.shape[-1]
            weight.mul_((3 / columns) ** 0.5 / _DUMMY_BOUND)
    return out


def random_drafts(lookup: Hook) -> Hook:
    """Return a look-up whose drafts are random tokens, the same on all ranks.

    A target with random weights repeats itself, and so do drafts that copy it: one token many
    times, which visits one token's experts.
    """
    import numpy

    draw = numpy.random.default_rng(0)

    def drafts(original: Hook, corpus: Any, *args: Any, **kwargs: Any) -> Any:
        tokens, mask = lookup(original, corpus, *args, **kwargs)
        rows = tokens.reshape(-1, corpus.draft_token_num)  # each begins with its root
        rows[:, 1:] = draw.integers(*_TOKENS, size=rows[:, 1:].shape)
        return tokens, mask

    return drafts


def _is_sm120() -> bool:
    """Whether this process's GPU is of the Blackwell workstation kind."""
    import torch

    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 12


def _is_first_rank() -> bool:
    """Whether this is the rank whose steps count; all ranks run the same ones."""
    torch = sys.modules.get("torch")
    distributed = torch.distributed if torch else None
    return distributed is None or not distributed.is_initialized() or distributed.get_rank() == 0
