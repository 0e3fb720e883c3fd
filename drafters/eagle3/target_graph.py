"""The step of a writing batch as one CUDA graph: its thousand small kernels cost one launch."""

from __future__ import annotations

import torch
from torch import Tensor

from drafters.eagle3.train.target import KV, Target

WARM_UPS = 2


class GraphStep:
    """`Target.step` of one batch, captured over the whole cache so that no shape changes."""

    def __init__(self, target: Target, pads: Tensor, cache: KV, length: int) -> None:
        """Capture.

        Args:
            target: The target, on a GPU.
            pads: [B] int64: pads before each prompt.
            cache: Written by every step; capturing writes slot `length`, which the next one owns.
            length: Slots in use.
        """
        self._tokens = torch.zeros_like(pads)
        self._length = torch.full((1,), length, dtype=torch.int64, device=pads.device)
        side = torch.cuda.Stream(pads.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(pads.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                target.step(self._tokens, pads, cache, self._length)
        torch.cuda.current_stream(pads.device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._logits = target.step(self._tokens, pads, cache, self._length)

    def __call__(self, tokens: Tensor, length: int) -> Tensor:
        """Append one token to each sequence; return its logits, [B, V], until the next call."""
        self._tokens.copy_(tokens)
        self._length.fill_(length)
        self._graph.replay()
        return self._logits
