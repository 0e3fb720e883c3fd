"""The GPUs of this machine, as the driver's own tool tells; and the fence after a server."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

TOOL = "nvidia-smi"
ASK_S = 20.0
SLACK_MIB = 512  # contexts of others come and go; a server's weights and cache are far more
POLL_S = 0.5


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        index: As the driver counts.
        used_mib: Memory in use, in MiB.
        total_mib: All of it, in MiB.
    """

    index: int
    uuid: str
    name: str
    used_mib: int
    total_mib: int


class MemoryNotBack(RuntimeError):
    """GPU memory is held that should be free."""


def gpus() -> list[Gpu]:
    """Return the GPUs that this process may use, in its order; none if there is no driver."""
    found = [
        Gpu(int(row[0]), row[1], row[2], int(row[3]), int(row[4]))
        for row in _query("--query-gpu=index,uuid,name,memory.used,memory.total")
        if len(row) == 5 and row[3].isdigit() and row[4].isdigit()
    ]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    wanted = [part.strip() for part in visible.split(",") if part.strip()]
    return [gpu for name in wanted for gpu in found if _is(gpu, name)]


def wait_for_room(count: int, share: float, timeout_s: float) -> None:
    """Wait until the first GPUs have that share of their memory free.

    A server that was killed a moment ago gives it back after its end.

    Raises:
        MemoryNotBack: They have not; the text names what is missing and who holds it.
    """
    deadline = time.monotonic() + timeout_s
    while crowded := [
        gpu for gpu in gpus()[:count] if gpu.total_mib - gpu.used_mib < share * gpu.total_mib
    ]:
        if time.monotonic() > deadline:
            gpu = crowded[0]
            missing = share * gpu.total_mib - gpu.total_mib + gpu.used_mib
            raise MemoryNotBack(
                f"GPU {gpu.index} lacks {missing:.0f} MiB for engine.mem_fraction={share:g};"
                f" {holders(gpu)}"
            )
        time.sleep(POLL_S)


def fence(before: Sequence[Gpu], timeout_s: float) -> None:
    """Wait until the GPUs hold no more than before.

    Args:
        before: The GPUs as they were before the server.
        timeout_s: How long memory may take to come back.

    Raises:
        MemoryNotBack: It did not; the text names the processes that hold it.
    """
    deadline = time.monotonic() + timeout_s
    while late := _fuller(before):
        if time.monotonic() > deadline:
            gpu, held = late[0]
            raise MemoryNotBack(
                f"GPU {gpu.index} still holds {held} MiB more than before the server"
                f" {timeout_s:g} s after its end; {holders(gpu)}"
            )
        time.sleep(POLL_S)


def holders(gpu: Gpu) -> str:
    """Say which processes hold memory of a GPU."""
    rows = _query("--query-compute-apps=gpu_uuid,pid,process_name,used_memory")
    found = [row for row in rows if len(row) == 4 and row[0] == gpu.uuid]
    if not found:
        return "the driver names no process (it may be in another container)"
    return "held by " + ", ".join(f"pid {pid} {name} ({mib} MiB)" for _, pid, name, mib in found)


def _fuller(before: Sequence[Gpu]) -> list[tuple[Gpu, int]]:
    """Return the GPUs that hold more than before, and how much more."""
    now = {gpu.uuid: gpu for gpu in gpus()} if before else {}
    grown = [(gpu, now[gpu.uuid].used_mib - gpu.used_mib) for gpu in before if gpu.uuid in now]
    return [(gpu, more) for gpu, more in grown if more > SLACK_MIB]


def _is(gpu: Gpu, name: str) -> bool:
    """Whether CUDA's name of a device, an index or the beginning of its uuid, means this GPU."""
    return name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))


def _query(question: str) -> list[list[str]]:
    tool = shutil.which(TOOL)
    if tool is None:
        return []
    try:
        done = subprocess.run(
            [tool, question, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return []
    if done.returncode:
        return []
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]
