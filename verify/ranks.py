"""Ranks on one machine: what their environment needs, how they meet, and one process a GPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

# Everything stays on this machine, and NVLink multicast stays off: a program that uses it can put
# a shared host's GPUs out of service.
ENVIRONMENT = {
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
}


def meet(rank: int, world: int, rendezvous: str, kind: str) -> torch.device:
    """Join the default group of all ranks and return this one's device.

    Args:
        rank: This process; also the number of its GPU.
        world: Processes in all.
        rendezvous: Address of the meeting, such as `file:///tmp/a/ranks`.
        kind: `cuda`, whose ranks sum by NCCL, or `cpu`, whose ranks sum by gloo.
    """
    on_gpu = kind == "cuda"
    device = torch.device(f"cuda:{rank}" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=rendezvous,
        rank=rank,
        world_size=world,
        device_id=device if on_gpu else None,
    )
    return device


def each_rank(work: Callable[..., None], world: int, *arguments: Any, kind: str = "cuda") -> None:
    """Run `work(device, *arguments)` in a process for each rank, and wait until all are done.

    Args:
        work: A function of a module, so that it can be found from another process.
        world: Processes; of kind `cuda` one a GPU.
        arguments: What `work` is given besides the rank's device.
        kind: As `meet` takes it.

    Raises:
        ProcessRaisedException: One of them raised; the others are ended.
    """
    os.environ.update(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        given = (work, world, f"file://{Path(folder, 'ranks')}", kind, arguments)
        spawn(_rank, given, nprocs=world)  # type: ignore[no-untyped-call]


def _rank(
    rank: int,
    work: Callable[..., None],
    world: int,
    rendezvous: str,
    kind: str,
    arguments: tuple[Any, ...],
) -> None:
    """Be one of the ranks."""
    work(meet(rank, world, rendezvous, kind), *arguments)
    dist.destroy_process_group()
