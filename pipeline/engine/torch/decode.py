"""Speculative decoding of one request: draft, verify, accept, commit; every time and count kept."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil
import torch
from torch import Tensor

from drafters.base import Context, Draft, Proposer
from pipeline.cell.cell import Sampling
from pipeline.cell.response import Response
from pipeline.engine.torch import accept
from pipeline.engine.torch.llama import KVCache
from pipeline.engine.torch.prefill import Prefill
from pipeline.machine.cpu_load import OtherProcesses
from pipeline.workload.prompts import Prompt
from verify.base import StepInput, StepOutput, VerifyStep


@dataclass
class _Trace:
    """What the steps of one response left behind; the fields are those of `Response`."""

    committed: list[int] = field(default_factory=list)
    proposed: list[int] = field(default_factory=list)
    depth: list[int] = field(default_factory=list)
    verify_ms: list[float] = field(default_factory=list)
    draft_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)

    def add(
        self, draft: Draft, num_committed: int, verify_ms: float, marks: tuple[float, ...]
    ) -> None:
        """Record a step; marks are the clock before drafting, after it, and at the step's end."""
        began, drafted, ended = marks
        self.committed.append(num_committed)
        self.proposed.append(len(draft.tokens))
        self.depth.append(max(draft.depths, default=0))
        self.verify_ms.append(verify_ms)
        self.draft_ms.append((drafted - began) * 1e3)
        self.step_ms.append((ended - began) * 1e3)


class Decoder:
    """The loop of one cell: target, verify step and proposer, one request at a time."""

    def __init__(
        self,
        prefill: Prefill,
        step: VerifyStep,
        proposer: Proposer,
        cache: KVCache,
        sampling: Sampling,
        stop_tokens: frozenset[int],
        ranks: Sequence[psutil.Process] = (),
    ) -> None:
        """Bind the parts; none of them is owned. `ranks` are the other ranks' processes."""
        self._prefill, self._step, self._proposer = prefill, step, proposer
        self._cache, self._sampling, self._stop_tokens = cache, sampling, stop_tokens
        self._ranks = ranks

    def respond(self, prompt: Prompt, repetition: int) -> Response:
        """Answer one prompt and return its counts and times."""
        self._cache.length = 0
        sampler = torch.Generator().manual_seed(_seed(self._sampling.seed, prompt.id, repetition))
        others = OtherProcesses(self._ranks)
        began = time.perf_counter()
        out = self._prefill(prompt.tokens)
        self._cache.length = len(prompt.tokens)
        first = self._accept(Draft((), ()), out, sampler).bonus
        self._proposer.begin(Context((*prompt.tokens, first), out.features))
        prefilled = time.perf_counter()
        tokens, margins, trace = self._decode(prompt, first, out, sampler)
        ended = time.perf_counter()
        return Response(
            prompt_id=prompt.id,
            category=prompt.category,
            num_prompt_tokens=len(prompt.tokens),
            tokens=tuple(tokens),
            margins=tuple(margins),
            committed=tuple(trace.committed),
            proposed=tuple(trace.proposed),
            depth=tuple(trace.depth),
            verify_ms=tuple(trace.verify_ms),
            draft_ms=tuple(trace.draft_ms),
            step_ms=tuple(trace.step_ms),
            prefill_ms=(prefilled - began) * 1e3,
            decode_ms=(ended - prefilled) * 1e3,
            finish="stop" if tokens[-1] in self._stop_tokens else "length",
            others_cpu=others.share(),
        )

    def _decode(
        self, prompt: Prompt, first: int, out: StepOutput, sampler: torch.Generator
    ) -> tuple[list[int], list[float], _Trace]:
        """Return output tokens, their margins and the steps' trace, from the first token on."""
        context = [*prompt.tokens, first]
        margins, trace = [float(out.margin[-1])], _Trace()
        heat = self._sampling.temperature
        most = len(prompt.tokens) + self._sampling.max_new_tokens
        features = None if out.features is None else out.features[-1:]
        while len(context) < most and context[-1] not in self._stop_tokens:
            began = time.perf_counter()
            draft = self._proposer.propose(Context(context, features, heat, sampler))
            drafted = time.perf_counter()
            out = self._step(self._input(context[-1], draft))
            accepted = self._accept(draft, out, sampler)
            rows = (0, *(child + 1 for child in accepted.path))
            committed = self._until_stop(
                [draft.tokens[child] for child in accepted.path], accepted.bonus
            )
            committed = committed[: most - len(context)]
            context += committed
            margins += out.margin[list(rows)].tolist()[: len(committed)]
            features = None if out.features is None else out.features[list(rows)]
            self._cache.keep(rows)
            trace.add(draft, len(committed), out.device_ms, (began, drafted, time.perf_counter()))
        return context[len(prompt.tokens) :], margins, trace

    def _input(self, root: int, draft: Draft) -> StepInput:
        """Return the step over the root and its draft."""
        start = self._cache.length
        return StepInput(
            torch.tensor((root, *draft.tokens)),
            torch.tensor((0, *draft.depths)) + start,
            tree_mask(draft),
            start,
        )

    def _accept(self, draft: Draft, out: StepOutput, sampler: torch.Generator) -> accept.Accepted:
        """Apply the rule of the cell's temperature to the last rows of an output."""
        if self._sampling.temperature == 0:
            return accept.greedy(draft, out.best[-len(draft.tokens) - 1 :])
        logits = out.logits[-len(draft.tokens) - 1 :].cpu() / self._sampling.temperature
        return accept.rejection(draft, logits.softmax(dim=-1), sampler)

    def _until_stop(self, kept: list[int], bonus: int) -> list[int]:
        """Return what is committed: up to and with the first stop token."""
        for place, token in enumerate(kept):
            if token in self._stop_tokens:
                return kept[: place + 1]
        return [*kept, bonus]


def tree_mask(draft: Draft) -> Tensor:
    """Return which rows (the root is row 0) each row attends: itself and its ancestors, [W, W]."""
    width = len(draft.tokens) + 1
    if draft.is_chain:
        return torch.ones(width, width, dtype=torch.bool).tril()
    mask = torch.eye(width, dtype=torch.bool)
    mask[:, 0] = True
    for child, parent in enumerate(draft.parents):
        mask[child + 1] |= mask[parent + 1]
    return mask


def _seed(seed: int, prompt_id: str, repetition: int) -> int:
    """Return a seed that no other prompt or repetition shares."""
    text = f"{seed}/{prompt_id}/{repetition}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7])
