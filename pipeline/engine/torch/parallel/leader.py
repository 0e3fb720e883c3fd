"""Lead the ranks of a tensor-parallel target from rank 0, which is the session's process.

`ParallelLlama` starts and ends the other ranks; `LedPlan`, `LedStep` and `LedCache` pass each call
on to them. Rank 0 sends every step's input through a mailbox before it runs the step itself, so
all ranks launch at about the same time. If any rank ends early, the others end too: an all-reduce
waits for ever for a rank that is gone.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.engine.torch.llama import KVCache
from pipeline.engine.torch.parallel.mailbox import Mailbox
from pipeline.engine.torch.parallel.rank import Loads, Ranks, follow, packed
from pipeline.engine.torch.parallel.shards import shards
from verify.base import BuildsStep, Proof, StepInput, StepOutput, TargetShape, VerifyStep
from verify.native.plan import Plan, PlanOutput
from verify.ranks import ENVIRONMENT

_GRACE_S = 5.0  # for rank 0 to raise by itself after another rank ended


class ParallelLlama:
    """Rank 0 of a target that several ranks run together; one at a time, and on GPUs one ever.

    Torch's peer memory keeps the first group's store for the rest of the process.

    Attributes:
        local: Rank 0's part.
        weights: Rank 0's; the embedding is whole on every rank.
        linear: Which matrix product runs.
        cache: The cache of all ranks: what is kept here is kept on every rank.
        plan: The compiled forward of all ranks, where each has one.
    """

    def __init__(self, loader: Loads, shape: TargetShape, world: int, device: str) -> None:
        """Start the other ranks and load every rank's part.

        Args:
            loader: Loads one rank's part.
            shape: The whole target's shape.
            world: Ranks, this process included.
            device: `cpu`, or `cuda`: rank r takes GPU r.

        Raises:
            ValueError: The target or the machine cannot be split so.
        """
        shards(shape, world)
        if device == "cuda" and torch.cuda.device_count() < world:
            raise ValueError(f"parallelism.tp={world}: torch sees {torch.cuda.device_count()} GPUs")
        os.environ.update(ENVIRONMENT)
        self.shape = shape
        self._folder = tempfile.TemporaryDirectory()
        rendezvous = f"file://{Path(self._folder.name, 'ranks')}"
        ranks = Ranks(loader, shape, world, device, rendezvous)
        self._mailbox = Mailbox(world - 1)
        self._num_steps = 0
        spawn = multiprocessing.get_context("spawn")
        self._followers = [
            spawn.Process(
                target=follow,
                args=(ranks, rank, self._mailbox.path, torch.get_num_threads()),
                daemon=True,
            )
            for rank in range(1, world)
        ]
        for process in self._followers:
            process.start()
        self._closing = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()
        self.local = ranks.join(0)
        self.weights, self.linear = self.local.weights, self.local.linear
        self.cache = LedCache(self.local.cache, self._mailbox)
        plan = self.local.plan
        self.plan = LedPlan(plan, self._mailbox) if isinstance(plan, Plan) else None

    @property
    def followers(self) -> tuple[psutil.Process, ...]:
        """The other ranks' processes."""
        return tuple(psutil.Process(process.pid) for process in self._followers)

    def forward(self, step: StepInput) -> StepOutput:
        """Run one eager forward on all ranks."""
        self._mailbox.post("forward", packed(step))
        return self.local.forward(step)

    def build(self, backend: BuildsStep, width: int, threads: int) -> VerifyStep:
        """Build a backend's step on all ranks; calling it runs it on all of them.

        Raises:
            ValueError: This model, width or machine cannot run the backend.
        """
        number = self._num_steps = self._num_steps + 1
        self._mailbox.post("build", number, backend, width, threads)
        return LedStep(backend.build(self.local, width, threads), self._mailbox, number)

    def close(self) -> None:
        """End the other ranks; if one has ended already, no command would reach them all."""
        self._closing.set()
        if all(process.is_alive() for process in self._followers):
            self._mailbox.post("close")
            for process in self._followers:
                process.join(_GRACE_S)
        for process in self._followers:
            _end(process)
        dist.destroy_process_group()
        self._mailbox.close()
        if self.plan is not None:
            self.plan.close()
        self._folder.cleanup()

    def _watch(self) -> None:
        """End everything once a follower ends; rank 0 may be inside an all-reduce for ever.

        A compiled step is told, and raises; the library's all-reduce may not come back at all.
        """
        ended = wait([process.sentinel for process in self._followers])
        if self._closing.is_set():
            return
        codes = {}
        for rank, process in enumerate(self._followers, start=1):
            if process.sentinel in ended:
                process.join()  # its exit code comes a moment after its end
                codes[rank] = process.exitcode
        line = ", ".join(f"rank {rank}: {code}" for rank, code in codes.items())
        sys.stderr.write(f"a tensor-parallel rank ended early (exit codes: {line})\n")
        for process in self._followers:
            _end(process)
        plan: LedPlan | None = getattr(self, "plan", None)  # it may have ended while loading
        if plan is not None:
            plan.lose(min(codes))
        if not self._closing.wait(_GRACE_S):
            os._exit(1)


def _end(process: BaseProcess) -> None:
    """Make sure that a process of ours is gone."""
    if process.is_alive():
        process.kill()
        process.join()


class LedPlan:
    """Rank 0's compiled forward; a prompt is read on every rank."""

    def __init__(self, own: Plan, mailbox: Mailbox) -> None:
        """Bind rank 0's own part."""
        self._own, self._mailbox = own, mailbox

    def prefill(self, tokens: Tensor, positions: Tensor) -> PlanOutput:
        """Read a prompt, [N] int64 tokens and positions, from slot 0 on."""
        self._mailbox.post("prefill", tokens.numpy().tobytes())
        return self._own.prefill(tokens, positions)

    def lose(self, rank: int) -> None:
        """Let whoever waits for a rank know that it is gone."""
        if self._own.ranks is not None:
            self._own.ranks.lose(rank)

    def close(self) -> None:
        """Let go of the ranks' memory."""
        if self._own.ranks is not None:
            self._own.ranks.close()


class LedStep:
    """A step that runs on all ranks when rank 0 calls it."""

    def __init__(self, step: VerifyStep, mailbox: Mailbox, number: int) -> None:
        """Bind rank 0's own step; the others know theirs by its number."""
        self._step, self._mailbox, self._number = step, mailbox, number

    def __call__(self, step: StepInput) -> StepOutput:
        """Run the step on all ranks."""
        self._mailbox.post("step", self._number, packed(step))
        return self._step(step)

    @property
    def proof(self) -> Proof:
        """What rank 0 counted."""
        return self._step.proof

    def reset_counts(self) -> None:
        """Start counting at zero."""
        self._step.reset_counts()

    def close(self) -> None:
        """Free the step on all ranks."""
        self._mailbox.post("drop", self._number)
        self._step.close()


class LedCache(KVCache):
    """Rank 0's cache; what a tree keeps is moved on every rank."""

    def __init__(self, own: KVCache, mailbox: Mailbox) -> None:
        """Bind rank 0's own cache."""
        self.keys, self.values, self.length = own.keys, own.values, own.length
        self._mailbox = mailbox

    def keep(self, rows: tuple[int, ...]) -> None:
        """Commit rows of the last step on all ranks; a chain's already stand in their places."""
        if rows != tuple(range(len(rows))):
            self._mailbox.post("keep", self.length, rows)
        super().keep(rows)
