"""Run one rank of a tensor-parallel target: join the group, load a part, follow rank 0.

Steps arrive as bytes from rank 0's mailbox. `SeparateJoin` sums the ranks' parts at the end of a
block, `VocabularyParallelHead` gathers their logits.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.engine.torch.kernels import Kernels
from pipeline.engine.torch.llama import Llama, Matrix
from pipeline.engine.torch.parallel.mailbox import Mailbox
from pipeline.engine.torch.parallel.shards import Shard, shards
from verify.base import StepInput, TargetShape, VerifyStep
from verify.ranks import meet

_PR_SET_PDEATHSIG = 1

PackedStep = tuple[bytes, bytes, bytes, int]  # tokens, positions, mask, start
_TURN_NS = 100_000  # the shortest that Linux takes
_SYSCALLS = {"x86_64": 314, "aarch64": 274}  # sched_setattr
# Loads one rank's part of a target, with joins and head still local; picklable, since every rank
# calls it in its own process.
Loads = Callable[[Shard, torch.device], Llama]


@dataclass(frozen=True)
class Ranks:
    """What a rank needs to take its place."""

    loader: Loads
    shape: TargetShape
    world: int
    device: str
    rendezvous: str

    def join(self, rank: int) -> Llama:
        """Meet the other ranks and return this one's model, which works with theirs."""
        if self.device == "cpu":
            take_short_turns()
        device = meet(rank, self.world, self.rendezvous, self.device)
        group = dist.group.WORLD
        assert group is not None
        model = self.loader(shards(self.shape, self.world)[rank], device)
        model.join = SeparateJoin(model.kernels, group)
        head = VocabularyParallelHead(model.weights.head, self.shape.vocab_size, group)
        model.weights = model.weights._replace(head=head)
        return model


def follow(ranks: Ranks, rank: int, mailbox_path: str, threads: int) -> None:
    """Run a rank other than 0: obey the mailbox until rank 0 closes it or is gone."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is rank 0's to handle
    torch.set_num_threads(threads)
    mailbox = Mailbox(ranks.world - 1, mailbox_path)
    model = ranks.join(rank)
    steps: dict[int, VerifyStep] = {}
    with torch.inference_mode():
        for command, arguments in mailbox.commands(rank - 1, parent):
            if command == "close":
                break
            _obey(model, steps, command, arguments)
    dist.destroy_process_group()
    mailbox.close()


def _obey(
    model: Llama, steps: dict[int, VerifyStep], command: str, arguments: tuple[Any, ...]
) -> None:
    """Do what rank 0 does; `steps` are the ones that are built, by rank 0's numbers."""
    if command == "forward":
        model.forward(unpacked(arguments[0]))
    elif command == "prefill":
        tokens = torch.frombuffer(bytearray(arguments[0]), dtype=torch.int64)
        assert model.plan is not None, "rank 0 has one"
        model.plan.prefill(tokens, torch.arange(len(tokens)))
    elif command == "build":
        number, backend, *room = arguments
        with suppress(ValueError):  # rank 0 is refused alike, and says so
            steps[number] = backend.build(model, *room)
    elif command == "step":
        steps[arguments[0]](unpacked(arguments[1]))
    elif command == "drop":
        steps.pop(arguments[0]).close()
    elif command == "keep":
        model.cache.length, rows = arguments
        model.cache.keep(rows)


def packed(step: StepInput) -> PackedStep:
    """Return a step as bytes: pickling tensors would take a tenth of a verify step."""
    tokens, positions, mask = (part.numpy().tobytes() for part in step[:3])
    return tokens, positions, mask, step.start


def unpacked(packed: PackedStep) -> StepInput:
    """Return the step again."""
    tokens, positions = (torch.frombuffer(bytearray(p), dtype=torch.int64) for p in packed[:2])
    mask = torch.frombuffer(bytearray(packed[2]), dtype=torch.bool)
    return StepInput(tokens, positions, mask.view(len(tokens), len(tokens)), packed[3])


class SeparateJoin:
    """The library's all-reduce, then residual add and norm by the model's own kernel.

    Attributes:
        allreduce: The library: `gloo` or `nccl`.
    """

    def __init__(self, kernels: Kernels, group: dist.ProcessGroup) -> None:
        """Bind the ranks' group."""
        self.allreduce = str(dist.get_backend(group))
        self.num_allreduces = self.num_fused = 0
        self._kernels, self._group = kernels, group

    def __call__(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + sum of the ranks' deltas`, [W, H], and that sum."""
        self.num_allreduces += 1
        dist.all_reduce(delta, group=self._group)
        return self._kernels.add_rms_norm(delta, residual, weight, eps)


class VocabularyParallelHead:
    """The head's product over this rank's rows, gathered from all ranks.

    Attributes:
        own: This rank's product.
    """

    def __init__(self, head: Matrix, vocab_size: int, group: dist.ProcessGroup) -> None:
        """Bind this rank's product; every rank but the last holds equally many rows."""
        self.own, self._vocab_size, self._group = head, vocab_size, group
        self._world = dist.get_world_size(group)

    def __call__(self, x: Tensor) -> Tensor:
        """Return all logits, [W, V] float32, on every rank."""
        part = -(-self._vocab_size // self._world)
        own = self.own(x).float()
        missing = part - own.shape[1]
        if missing:
            own = torch.nn.functional.pad(own, (0, missing))
        parts = own.new_empty((self._world, *own.shape))
        dist.all_gather(list(parts.unbind()), own.contiguous(), group=self._group)
        joined = parts.transpose(0, 1).reshape(len(x), self._world * part)
        return joined[:, : self._vocab_size].contiguous()


class _Attributes(ctypes.Structure):
    """`struct sched_attr` of linux/sched/types.h."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),  # 0 is the usual one, whose turns these are
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def take_short_turns() -> None:
    """Ask for short turns of this thread and what it starts; before Linux 6.12, no change."""
    number = _SYSCALLS.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return
    wanted = _Attributes(ctypes.sizeof(_Attributes), runtime=_TURN_NS)
    ctypes.CDLL(None).syscall(number, 0, ctypes.byref(wanted), 0)
