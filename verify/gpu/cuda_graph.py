"""Verify as one CUDA graph of a fixed-width step: one launch, and one wait for what was accepted.

The graph begins with the copy of the step's input out of a pinned buffer and ends with the copy
of best tokens and margins into another, so that a step is: write the buffer, launch, wait.
"""

from __future__ import annotations

import torch

from verify.base import Proof, StepInput, StepOutput, TargetModel
from verify.step import DeviceTimer, pad

# Eager runs before the capture: kernels are compiled and libraries choose their algorithms there.
_WARM_UPS = 3


class CudaGraphStep:
    """The captured step of one model and width."""

    def __init__(self, model: TargetModel, width: int) -> None:
        """Capture the step at `width` rows; this writes the cache's first slots.

        Raises:
            ValueError: The model's cache is too small for one step.
        """
        capacity = model.caches[0].shape[2]
        if width > capacity:
            raise ValueError(f"a step of {width} rows does not fit a cache of {capacity} slots")
        self._model, self._width = model, width
        self._num_steps = 0
        self._timer = DeviceTimer(model.device)
        # One copy brings everything: tokens, positions, the mask's rows, and start.
        size = width * (width + 2) + 1
        self._staged = torch.empty(size, dtype=torch.int64, pin_memory=True)
        self._input = torch.empty(size, dtype=torch.int64, device=model.device)
        self._best = torch.empty(width, dtype=torch.int64, pin_memory=True)
        self._margin = torch.empty(width, dtype=torch.float32, pin_memory=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.inference_mode():
            self._capture()

    def __call__(self, step: StepInput) -> StepOutput:
        """Replay the graph over the step's rows, padded."""
        num_rows = len(step.tokens)
        self._stage(pad(step, self._width))
        self._timer.start()
        self._graph.replay()
        self._timer.stop()
        ms = self._timer.ms()
        self._num_steps += 1
        best, margin = self._best[:num_rows].clone(), self._margin[:num_rows].clone()
        features = self._features[:num_rows] if self._features.shape[1] else None
        return StepOutput(self._logits[:num_rows], best, margin, features, ms)

    @property
    def proof(self) -> Proof:
        """Every step was a replay: there is no other way through this class."""
        return Proof(
            capture="cuda_graph",
            num_verify_steps=self._num_steps,
            num_captured_steps=self._num_steps,
            linear=self._model.linear,
            attention=self._model.attention,
            allreduce=self._model.join.allreduce,
            allreduces_per_step=self._allreduces,
            fused_allreduces_per_step=self._fused,
        )

    def reset_counts(self) -> None:
        """Start counting at zero."""
        self._num_steps = 0

    def close(self) -> None:
        """Free the graph and its memory."""
        self._graph.reset()

    def _stage(self, step: StepInput) -> None:
        """Write a step of full width into the pinned buffer; the graph copies it from there."""
        width, staged = self._width, self._staged
        staged[:width] = step.tokens
        staged[width : 2 * width] = step.positions
        staged[2 * width : -1] = step.mask.view(-1)
        staged[-1] = step.start

    def _run(self) -> None:
        """Run what is captured."""
        width = self._width
        self._input.copy_(self._staged, non_blocking=True)
        mask = self._input[2 * width : -1].view(width, width) != 0
        self._logits, best, margin, self._features = self._model.forward_static(
            self._input[:width],
            self._input[width : 2 * width],
            mask,
            self._input[-1],
            *self._model.caches,
        )
        self._best.copy_(best, non_blocking=True)
        self._margin.copy_(margin, non_blocking=True)

    def _capture(self) -> None:
        """Warm up beside the current stream, then record; nothing runs while recording."""
        rows = torch.zeros(self._width, dtype=torch.int64)  # at the cache's beginning
        self._stage(StepInput(rows, rows, torch.eye(self._width, dtype=torch.bool), 0))
        side = torch.cuda.Stream(self._model.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self._model.device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                self._run()
        torch.cuda.current_stream(self._model.device).wait_stream(side)
        join = self._model.join
        before = join.num_allreduces, join.num_fused
        # Other threads (a collective's watchdog, say) may talk to the GPU meanwhile.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._run()
        self._allreduces = join.num_allreduces - before[0]
        self._fused = join.num_fused - before[1]
