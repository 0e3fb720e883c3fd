"""A mixture-of-experts forward: its bytes and messages, and its time on a machine at its limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pipeline.roi import public_figures as public
from pipeline.roi.public_figures import Curve


@dataclass(frozen=True)
class Box:
    """One machine, or several.

    Attributes:
        name: What it is, for people.
        ranks: GPUs that a target is split over.
        bandwidth: Memory bandwidth of one GPU, bytes/s, as specified.
        nccl: Time of an all-reduce with NCCL: the fastest and the slowest published.
        fused: The same with a fused or one-shot kernel; empty where none works.
        kernel_us: Latency of a captured kernel on its own; 0 where the fitted machine's holds.
        source: Where bandwidth and curves are published.
    """

    name: str
    ranks: int
    bandwidth: float
    nccl: tuple[Curve, Curve]
    fused: tuple[Curve, ...]
    kernel_us: float
    source: str


# The same ring's bandwidth end, so that large batches are not taken as latency.
_RING = ((1024.0, 4096.0, 16384.0), (85.0, 191.0, 665.0))
_WRX90 = public.RTX6KPRO + "hardware/wrx90-cpayne-8gpu-root-topology-comparison.md"


def _with_ring(curve: Curve) -> Curve:
    """Return a PCIe curve with the large messages of the one machine that published them."""
    return Curve((*curve.kib, *_RING[0]), (*curve.us, *_RING[1]), curve.source)


_NVLINK_FUSED = Curve(
    (56.0, 1024.0),
    (4.9, 15.0),
    "https://github.com/flashinfer-ai/flashinfer/pull/5178 (8 GPUs, 4 rows); 1 MiB assumed",
)
_NVLINK_NCCL = (
    Curve((256.0, 1024.0, 16384.0), (6.5, 15.0, 90.0), "2x H200 measured, a bound for 8"),
    Curve((256.0, 1024.0, 16384.0), (24.0, 35.0, 150.0), "8 PCIe GPUs behind switches, a bound"),
)
PCIE8 = Box(
    "8x RTX PRO 6000, PCIe",
    8,
    1.79e12,
    (_with_ring(public.NCCL_PCIE_8[0]), _with_ring(public.NCCL_PCIE_8[3])),
    (public.CUSTOM_PCIE_8,),
    0.0,
    f"1.79 TB/s a GPU; all-reduce: {public.NCCL_PCIE_8[0].source},"
    f" {public.NCCL_PCIE_8[3].source}, large messages {_WRX90}",
)
NVLINK8 = Box(
    "8x H200, NVLink",
    8,
    4.8e12,
    _NVLINK_NCCL,
    (_NVLINK_FUSED,),
    4.4,
    f"4.8 TB/s a GPU; NCCL between two bounds; fused: {_NVLINK_FUSED.source};"
    " 4.4 µs a captured kernel measured on 2x H200",
)
TWO_HOSTS = Box(
    "2 hosts x 8 H200, cloud network",
    16,
    4.8e12,
    (
        Curve((256.0, 1024.0, 16384.0), (40.0, 70.0, 300.0), "assumed: a fast InfiniBand"),
        public.NCCL_TWO_HOSTS,
    ),
    (),
    4.4,
    f"4.8 TB/s a GPU; all-reduce: {public.NCCL_TWO_HOSTS.source} as the slow end, a fast"
    " InfiniBand assumed as the quick one; no fused kernel crosses hosts",
)


BF16 = 2.0  # bytes
INT4_GROUP_32 = 0.5 + 2 / 32  # a 4-bit weight and its share of a bf16 scale per 32


@dataclass(frozen=True)
class ScaleTarget:
    """One target.

    Attributes:
        name: Its name.
        hidden_size: Width of the residual stream.
        moe_layers: Layers with routed experts.
        experts: Routed experts of such a layer.
        top_k: Routed experts that a token visits.
        expert_bytes: Weights of one routed expert.
        sharded_bytes: Weights that every forward reads and the ranks share out.
        replicated_bytes: Weights that every rank reads whole.
        kv_bytes: Cache of one token over all layers; every rank reads it whole (latent attention).
        allreduces: All-reduces of a forward under tensor parallelism.
        kernels: Kernels of a forward, about.
        source: Where the shape is published.
    """

    name: str
    hidden_size: int
    moe_layers: int
    experts: int
    top_k: int
    expert_bytes: float
    sharded_bytes: float
    replicated_bytes: float
    kv_bytes: float
    allreduces: int
    kernels: int
    source: str

    def distinct_experts(self, rows: int) -> float:
        """Return the routed experts of a layer that `rows` tokens visit, if routing is even."""
        return self.experts * (1 - (1 - self.top_k / self.experts) ** rows)

    def rank_bytes(self, rows: int, ranks: int) -> float:
        """Return the weights that one rank reads in a forward over `rows` tokens."""
        routed = self.moe_layers * self.distinct_experts(rows) * self.expert_bytes
        return (routed + self.sharded_bytes) / ranks + self.replicated_bytes

    def message_kib(self, rows: int) -> float:
        """Return the size of one all-reduce, bf16."""
        return rows * self.hidden_size * BF16 / 1024


def _kimi() -> ScaleTarget:
    """Count Kimi-K2.5's bytes from its shape; K2.6 and K2.7 have the same."""
    hidden, layers, heads = 7168, 61, 64
    rank_q, rank_kv, rope, nope, value = 1536, 512, 64, 128, 128
    expert = 3 * hidden * 2048
    attention = rank_q * heads * (nope + rope) + rank_kv * heads * (nope + value)
    attention += heads * value * hidden
    dense, head = 3 * hidden * 18432, 163840 * hidden
    shared = 60 * expert + layers * attention + dense + head
    return ScaleTarget(
        name="Kimi-K2.5",
        hidden_size=hidden,
        moe_layers=60,
        experts=384,
        top_k=8,
        expert_bytes=expert * INT4_GROUP_32,
        sharded_bytes=shared * BF16,
        replicated_bytes=layers * hidden * (rank_q + rank_kv + rope) * BF16,
        kv_bytes=layers * (rank_kv + rope) * 1.0,  # fp8, as on the machine that is fitted below
        allreduces=2 * layers,
        kernels=20 * layers,  # counted on a mixture of experts of 48 layers: 974 kernels
        source="https://huggingface.co/moonshotai/Kimi-K2.5/blob/main/config.json",
    )


KIMI_K2_5 = _kimi()


class Work(NamedTuple):
    """One step's work.

    Attributes:
        batch: Requests in flight.
        width: Rows of each: 1 for plain decoding, draft tokens + 1 to verify.
        context: Tokens in the cache of each.
    """

    batch: int
    width: int
    context: int

    @property
    def rows(self) -> int:
        """Rows of the forward."""
        return self.batch * self.width


class Terms(NamedTuple):
    """The terms of a forward in ms at the hardware's own limits; a coefficient scales each.

    Attributes:
        weights: Reading the weights of all experts that the rows visit.
        cache: Reading the requests' caches once.
        cache_again: Reading them once more per row beyond the first, if nothing is shared.
        allreduce: All all-reduces at their published time.
        fixed: 1: what every forward pays for its kernels' own latency.
        draft: 1 for a step that drafts, else 0.
    """

    weights: float
    cache: float
    cache_again: float
    allreduce: float
    fixed: float
    draft: float


MEANING = {
    "weights": "share of the specified bandwidth is 1/this",
    "cache": "times one reading of the latent cache",
    "cache_again": "times one more reading for each further row of a request",
    "allreduce": "times the published time of one alone: waiting included",
    "fixed": "ms a forward, captured",
    "draft": "ms a step for three draft passes",
}


def terms(target: ScaleTarget, box: Box, work: Work, curve: Curve) -> Terms:
    """Return the terms of one step."""
    cache = 1000 * work.batch * work.context * target.kv_bytes / box.bandwidth
    return Terms(
        weights=1000 * target.rank_bytes(work.rows, box.ranks) / box.bandwidth,
        cache=cache,
        cache_again=cache * (work.width - 1),
        allreduce=target.allreduces * curve.at(target.message_kib(work.rows)) / 1000,
        fixed=1.0,
        draft=1.0 if work.width > 1 else 0.0,
    )
