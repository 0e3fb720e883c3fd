"""A cell at work on the torch engine: its parts loaded, warmed up, ready to answer."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, cast

import torch

from drafters.base import Proposes, TargetInfo
from pipeline.cell.response import Response
from pipeline.engine.sglang.arguments import deploy_elsewhere
from pipeline.engine.torch.decode import Decoder
from pipeline.engine.torch.llama import KVCache, Llama
from pipeline.engine.torch.parallel.leader import ParallelLlama
from pipeline.engine.torch.parallel.shards import shards
from pipeline.engine.torch.prefill import Prefill, eager_prefill, planned_prefill
from pipeline.engine.torch.threads import available_cores, calibrated_threads
from pipeline.engine.torch.weights import DenseLoader, PackedLoader
from pipeline.machine.cache import cache_root
from pipeline.workload.prompts import Prompt
from verify.base import BuildsStep, Proof, TargetShape, VerifyStep
from verify.native.build import find_compiler, load_source

if TYPE_CHECKING:
    from pipeline.cell.cell import Cell
    from pipeline.engine.torch.parallel.rank import Loads
    from pipeline.target.checkpoint import Checkpoint

# Steps timed for each number of threads; the fastest counts, so that a disturbance does not.
CALIBRATION_STEPS = 12


class TorchSession:
    """Target, drafter and verify step of one cell, in this process.

    Nothing is computed under autograd: parameters are never trained here.
    """

    def __init__(self, cell: Cell, device: str, threads: int, native: str) -> None:
        """Open the checkpoint and check that the machine can run the cell.

        Raises:
            ValueError: The target, the drafter or the machine does not fit.
        """
        self._cell, self._native = cell, native
        self._cache_root = cache_root()
        self._checkpoint = cell.target.checkpoint(self._cache_root)
        self._device = _device(device)
        self._packed = self._checkpoint.packed() if self._uses_native() else None
        self._dtype = self._compute_dtype()
        self._threads = threads

    def warm_up(self, prompts: list[Prompt]) -> None:
        """Allocate the cache, build the step, and answer the shortest prompt once, uncounted."""
        shortest = min(prompts, key=lambda prompt: len(prompt.tokens))
        with torch.inference_mode():
            self._build(max(len(prompt.tokens) for prompt in prompts))
            self._decoder.respond(shortest, repetition=-1)
        self._step.reset_counts()

    def generate(self, prompt: Prompt, repetition: int) -> Response:
        """Answer one prompt."""
        with torch.inference_mode():
            return self._decoder.respond(prompt, repetition)

    def proof(self) -> Proof:
        """What the verify step counted since warm-up."""
        return self._step.proof

    def settings(self) -> dict[str, str]:
        """What was resolved when the cell started."""
        return {
            "device": torch.cuda.get_device_name() if self._device.type == "cuda" else "cpu",
            "dtype": "float32" if self._packed else str(self._dtype).removeprefix("torch."),
            "threads": str(self._threads),
            "linear": self._model.linear,
            "torch": torch.__version__,
            "target_digest": self._checkpoint.digest,
            "target_folder": str(getattr(self._checkpoint, "folder", "none: random weights")),
            "seed": str(self._cell.sampling.seed),
            "deploy": deploy_elsewhere(self._cell, self._cache_root),
        }

    def close(self) -> None:
        """Free the step and the drafter."""
        self._step.close()
        self._proposer.close()
        if isinstance(self._model, ParallelLlama):
            self._model.close()

    def _build(self, longest_prompt: int) -> None:
        """Load the weights and put the parts together."""
        cell, shape = self._cell, self._checkpoint.shape()
        width = cell.drafter.num_draft_tokens + 1
        drafter = cast(Proposes, cell.drafter)
        layers = drafter.capture_layers(shape.num_layers)
        # A padded step writes up to a whole width past the last committed token.
        capacity = longest_prompt + cell.sampling.max_new_tokens + 2 * width
        self._threads = self._threads or self._calibrate(shape)
        torch.set_num_threads(self._threads)
        self._model = self._load(shape, capacity, width, layers)
        # The fastest prefill that there is; all verify backends get the same one.
        prefill: Prefill = partial(eager_prefill, self._model.forward)
        if self._model.plan is not None:
            prefill = partial(planned_prefill, self._model.plan.prefill)
        self._step = self._built(cast(BuildsStep, cell.verify), width)
        self._proposer = drafter.start(self._target_info(capacity))
        stops = () if cell.target.is_random else self._checkpoint.tokenizer().stop_ids
        self._decoder = Decoder(
            prefill,
            self._step,
            self._proposer,
            self._model.cache,
            cell.sampling,
            frozenset(stops),
            self._model.followers if isinstance(self._model, ParallelLlama) else (),
        )

    def _target_info(self, capacity: int) -> TargetInfo:
        """Return what a drafter may use of the target and of this machine."""
        compiles = partial(load_source, self._cache_root) if self._packed else None
        return TargetInfo(
            shape=self._checkpoint.shape(),
            embedding=self._model.weights.embedding,
            device=self._device,
            dtype=self._dtype,
            capacity=capacity,
            threads=self._threads,
            captured=self._step.proof.capture != "none",
            compile=compiles,
        )

    def _load(
        self, shape: TargetShape, capacity: int, width: int, layers: tuple[int, ...]
    ) -> Llama | ParallelLlama:
        """Bind the weights in the form that this device runs, on as many ranks as the cell has."""
        world, checkpoint = self._cell.parallelism.tp, self._checkpoint
        loader: Loads = DenseLoader(checkpoint, capacity, self._dtype, layers)
        if self._packed:
            published, root = cast("Checkpoint", checkpoint), self._cache_root
            loader = PackedLoader(published, capacity, width, self._threads, root, layers)
        if world > 1:
            return ParallelLlama(loader, shape, world, self._device.type)
        return loader(shards(shape, world)[0], self._device)

    def _built(self, backend: BuildsStep, width: int) -> VerifyStep:
        """Build the verify step on all ranks."""
        if isinstance(self._model, ParallelLlama):
            return self._model.build(backend, width, self._threads)
        return backend.build(self._model, width, self._threads)

    def _calibrate(self, shape: TargetShape) -> int:
        """Measure which number of threads decodes fastest; without kernels, leave it to torch.

        Ranks share the cores: a thread that waits for its core would hold up all of them.
        """
        world = self._cell.parallelism.tp
        if not self._packed:
            return max(1, torch.get_num_threads() // world)
        if world > 1:
            return max(1, available_cores() // world)
        cache = KVCache(shape, 64, self._dtype, self._device, shape.num_kv_heads)
        (whole,), packed = shards(shape, world), self._packed
        checkpoint = cast("Checkpoint", self._checkpoint)

        def decode_seconds(threads: int) -> float:
            loader = PackedLoader(checkpoint, cache.capacity, 1, threads, self._cache_root)
            plan, seconds = loader.plan(whole, packed, cache), []
            step = (torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
            for start in range(CALIBRATION_STEPS):
                began = time.perf_counter()
                plan.run(*step, torch.ones(1, 1, dtype=torch.bool), start)
                seconds.append(time.perf_counter() - began)
            return min(seconds)

        return calibrated_threads(decode_seconds, self._checkpoint.digest, self._cache_root)

    def _uses_native(self) -> bool:
        """Whether the C kernels run: asked for, on a CPU, and there is a compiler."""
        setting = self._native
        if self._device.type != "cpu" or setting == "off":
            return False
        if find_compiler() is None and setting == "require":
            raise ValueError("engine.native=require: no C compiler (cc, gcc or clang) was found")
        return find_compiler() is not None

    def _compute_dtype(self) -> torch.dtype:
        """Return the type of the cache and of dense weights.

        Raises:
            ValueError: The C kernels are to compute in another type than theirs.
        """
        wanted = self._cell.target.dtype
        if wanted == "auto":
            return torch.bfloat16 if self._device.type == "cuda" else torch.float32
        if self._packed and wanted != "float32":
            raise ValueError(
                f"target.dtype={wanted}: packed weights are summed in float32; set"
                " target.dtype=auto or engine.native=off"
            )
        return cast(torch.dtype, getattr(torch, wanted))


def _device(setting: str) -> torch.device:
    """Return the device to run on.

    Raises:
        ValueError: A GPU is asked for and there is none.
    """
    if setting == "cuda" and not torch.cuda.is_available():
        raise ValueError("engine.device=cuda: torch sees no GPU; use engine.device=cpu or auto")
    if setting == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(setting)
