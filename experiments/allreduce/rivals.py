"""Other projects' all-reduces beside ours, in one run: FlashInfer's fused kernel and SGLang's own.

`PYTHONPATH=SITE:. python -m experiments.allreduce.rivals OUT flashinfer`, or `... OUT sglang`,
where SITE has SGLang 0.5.17 and the FlashInfer that it pins. They are called as SGLang calls them,
and checked against float64 first. NVLink multicast stays off: FlashInfer's `trtllm` kernel, never
`mnnvl`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from experiments.verify_cost.one_gpu import relative_error
from pipeline.engine.torch.gpu import rowwise
from pipeline.engine.torch.kernels import Kernels
from verify.allreduce import topology
from verify.gpu.peer_memory.allreduce import PeerAllReduce
from verify.gpu.peer_memory.latency import Latency, latency
from verify.ranks import each_rank

HIDDEN, EPS = 4096, 1e-5
WIDTHS = (1, 4, 8, 16)
# Residual add and norm of the sum: (delta, residual, weight) -> (norm, sum), [W, H] each.
Fused = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def ours(device: torch.device) -> dict[str, Fused]:
    """Return our kernels and the library's sum."""
    assert dist.group.WORLD is not None
    peers = PeerAllReduce(dist.group.WORLD, device, max(WIDTHS) * HIDDEN)

    def library(delta: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        dist.all_reduce(delta)
        return rowwise.add_rms_norm(delta, residual, weight, EPS)

    return {
        "NCCL + own norm": library,
        "one-shot + own norm": lambda d, r, w: rowwise.add_rms_norm(peers.one_shot(d), r, w, EPS),
        "fused": lambda d, r, w: peers.fused(d, r, w, EPS),
    }


def flashinfer(beside: dist.ProcessGroup) -> dict[str, Fused]:
    """Return FlashInfer's kernel, one-shot.

    Args:
        beside: All ranks over gloo, for the exchange of handles.
    """
    from flashinfer import comm
    from flashinfer.comm.mnnvl import TorchDistBackend

    workspace = comm.create_allreduce_fusion_workspace(
        backend="trtllm",
        world_size=dist.get_world_size(),
        rank=dist.get_rank(),
        max_token_num=2048,
        hidden_dim=HIDDEN,
        dtype=torch.bfloat16,
        comm_backend=TorchDistBackend(beside),
        group=dist.group.WORLD,
    )

    def fused(delta: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        norm, total = torch.empty_like(delta), torch.empty_like(residual)
        comm.allreduce_fusion(
            input=delta,
            workspace=workspace,
            pattern=comm.AllReduceFusionPattern.kARResidualRMSNorm,
            launch_with_pdl=True,
            trigger_completion_at_end=False,
            residual_out=total,
            norm_out=norm,
            residual_in=residual,
            rms_gamma=weight,
            rms_eps=EPS,
            use_oneshot=True,
        )
        return norm, total

    return {"FlashInfer trtllm fused": fused}


def sglang(beside: dist.ProcessGroup, device: torch.device) -> dict[str, Fused]:
    """Return SGLang's custom all-reduce with our norm behind it.

    Raises:
        ValueError: It refuses these GPUs.
    """
    from sglang.srt.distributed.device_communicators.custom_all_reduce_v2 import CustomAllReduceV2

    sums = CustomAllReduceV2(beside, device)
    if sums.disabled:
        raise ValueError("SGLang's custom all-reduce refuses these GPUs")

    def then_norm(delta: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return rowwise.add_rms_norm(sums.custom_all_reduce(delta), residual, weight, EPS)

    return {"SGLang custom + own norm": then_norm}


def check(way: Fused, width: int, device: torch.device) -> float:
    """Return the worse relative error of norm and sum against float64 of all ranks' inputs."""
    draw = torch.Generator(device).manual_seed(width)
    size = (dist.get_world_size() + 1, width, HIDDEN)
    drawn = torch.randn(size, generator=draw, device=device).bfloat16()
    weight = torch.rand(HIDDEN, generator=draw, device=device).bfloat16()
    exact = drawn[:-1].double().sum(0)
    truth = Kernels().add_rms_norm(exact, drawn[-1].double(), weight.double(), EPS)
    found = way(drawn[dist.get_rank()].clone(), drawn[-1].clone(), weight)
    return max(relative_error(out, true) for out, true in zip(found, truth, strict=True))


def measured(ways: dict[str, Fused], device: torch.device) -> dict[str, dict[int, Latency]]:
    """Check each way, then return its latencies by width."""
    found: dict[str, dict[int, Latency]] = {}
    for name, way in ways.items():
        errors = [check(way, width, device) for width in WIDTHS for _ in range(3)]
        assert max(errors) < 1e-2, f"{name}: {errors}"
        for width in WIDTHS:
            message, residual = (
                torch.randn(width, HIDDEN, device=device, dtype=torch.bfloat16) for _ in range(2)
            )
            weight = torch.ones(HIDDEN, device=device, dtype=torch.bfloat16)
            run = lambda way=way, given=(message, residual, weight): way(*given)  # noqa: E731
            found.setdefault(name, {})[width] = latency(run, message)
    return found


def compare(device: torch.device, out: str, rival: str) -> None:
    """Check and measure as one rank; rank 0 prints and writes."""
    beside = dist.new_group(backend="gloo")
    theirs = flashinfer(beside) if rival == "flashinfer" else sglang(beside, device)
    with torch.inference_mode():
        found = measured(ours(device) | theirs, device)
    if dist.get_rank() == 0:
        print(topology(), table(found), sep="\n", flush=True)
        Path(out, f"rivals_{rival}.json").write_text(json.dumps(found))
    dist.barrier()
    os._exit(0)  # destructors of theirs talk to peers that may be gone


def table(found: dict[str, dict[int, Latency]]) -> str:
    """Return eager / captured microseconds by rows of the message."""
    lines = ["| rows | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    for width in WIDTHS:
        cells = (
            f"{row[width].eager_us:.1f} / {row[width].captured_us:.1f}" for row in found.values()
        )
        lines.append(f"| {width} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(out: str, rival: str) -> None:
    """Start one process a GPU, if the rival is here."""
    if importlib.util.find_spec(rival) is None:
        print(f"{rival} is not installed here: nothing is compared with it")
        return
    os.environ["SGLANG_SKIP_P2P_CHECK"] = "1"
    Path(out).mkdir(parents=True, exist_ok=True)
    each_rank(compare, min(8, torch.cuda.device_count()), out, rival)


if __name__ == "__main__":
    main(*sys.argv[1:])
