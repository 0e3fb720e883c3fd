"""`python -m verify.allreduce`: what an all-reduce costs here, by message size, and what that says.

One process a GPU. The table is for bf16 messages of a few rows, as verify steps sum them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from verify.gpu.peer_memory.latency import Latency

Row = dict[str, "Latency"]  # by way of summing

WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128)
# Several times what NCCL takes for such messages on any link that was measured in public.
FAR_US = 100.0
CAUSES = (
    "eager launches and ranks that start apart, counted as the kernel's time: compare the columns"
    " eager and captured; if captured is near the floor, capture the step",
    "GPUs that cannot reach each other's memory, so that data goes through the host: look at P2P"
    " above; `p2pBandwidthLatencyTest` shows it apart from any all-reduce, and the driver option"
    " ForceP2P (where the board allows it) removes it",
    "NCCL's choice of protocol or of transport: run again with NCCL_PROTO=LL, and with"
    " NCCL_P2P_DISABLE=1 to see what the way through the host costs; this explains a factor of"
    " two, never one of ten",
)


def findings(sizes: Sequence[int], rows: Sequence[Row]) -> list[str]:
    """Return what the latencies say, one sentence a finding.

    Args:
        sizes: Bytes of each message.
        rows: Latencies of each message.
    """
    found = []
    for size, row in zip(sizes, rows, strict=True):
        if (eager := row["nccl"].eager_us) > FAR_US:
            captured = row["nccl"].captured_us
            found.append(
                f"{size} bytes: an eager NCCL call takes {eager:.0f} us, captured {captured:.0f}:"
                " far from the floor. Known causes:"
            )
            found += [f"  {number}. {cause}" for number, cause in enumerate(CAUSES, 1)]
            break
    measured = [(size, row) for size, row in zip(sizes, rows, strict=True) if "two-shot" in row]
    crossed = [
        size for size, row in measured if row["two-shot"].captured_us < row["one-shot"].captured_us
    ]
    if crossed:
        found.append(f"two-shot is faster than one-shot from {min(crossed)} bytes on")
    elif measured:
        found.append(f"one-shot is the fastest up to {measured[-1][0]} bytes, the most measured")
    return found


def table(sizes: Sequence[int], rows: Sequence[Row]) -> str:
    """Return a Markdown table: eager / captured microseconds by message size."""
    ways = list(rows[0])
    lines = ["| bytes | " + " | ".join(ways) + " |", "|---" * (len(ways) + 1) + "|"]
    for size, row in zip(sizes, rows, strict=True):
        cells = (
            f"{row[way].eager_us:.1f} / {row[way].captured_us:.1f}" if way in row else "–"
            for way in ways
        )
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def topology() -> str:
    """Return how the GPUs are linked, as the driver tells."""
    import torch

    lines = [f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"]
    for one in range(torch.cuda.device_count()):
        reach = [
            str(other)
            for other in range(torch.cuda.device_count())
            if other != one and torch.cuda.can_device_access_peer(one, other)
        ]
        lines.append(f"P2P: GPU {one} reaches the memory of {', '.join(reach) or 'none'}")
    if shutil.which("nvidia-smi"):
        told = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True)
        lines += [line for line in told.stdout.splitlines() if line.lstrip().startswith("GPU")]
    return "\n".join(lines)


def _measure(device: torch.device, hidden: int, out: Path) -> None:
    """Measure as one rank; rank 0 writes the latencies."""
    import torch.distributed as dist

    from verify.gpu.peer_memory.allreduce import PeerAllReduce
    from verify.gpu.peer_memory.latency import latencies

    assert dist.group.WORLD is not None
    peers = PeerAllReduce(dist.group.WORLD, device, max(WIDTHS) * hidden)
    rows = [latencies(peers, dist.group.WORLD, device, (width, hidden)) for width in WIDTHS]
    if dist.get_rank() == 0:
        out.write_text(json.dumps(rows))


def measure(world: int, hidden: int) -> list[Row]:
    """Return the latencies of each width over `world` GPUs, one process each."""
    from verify.gpu.peer_memory.latency import Latency
    from verify.ranks import each_rank

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "rows.json")
        each_rank(_measure, world, hidden, out)
        stored: list[dict[str, Any]] = json.loads(out.read_text())
    return [{way: Latency(*times) for way, times in row.items()} for row in stored]


def main(arguments: Sequence[str]) -> None:
    """Print topology, table and findings.

    Raises:
        ValueError: There are not enough GPUs.
    """
    import torch

    parser = argparse.ArgumentParser(prog="python -m verify.allreduce", description=__doc__)
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count())
    parser.add_argument("--hidden", type=int, default=4096, help="elements of a row")
    chosen = parser.parse_args(arguments)
    if not 2 <= chosen.ranks <= torch.cuda.device_count():
        raise ValueError(
            f"--ranks={chosen.ranks}: an all-reduce needs 2 GPUs or more, and torch sees"
            f" {torch.cuda.device_count()}"
        )
    sizes = [2 * width * chosen.hidden for width in WIDTHS]
    rows = measure(chosen.ranks, chosen.hidden)
    notes = "\n".join(findings(sizes, rows))
    head = f"{chosen.ranks} ranks, bf16, microseconds a call, eager / captured"
    sys.stdout.write(f"{topology()}\n\n{head}\n\n{table(sizes, rows)}\n\n{notes}\n")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ValueError as error:
        sys.exit(str(error))
