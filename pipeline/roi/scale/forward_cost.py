"""Count the bytes and messages of a mixture-of-experts forward, and its time at hardware limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pipeline.roi.public_figures import Curve
from pipeline.roi.scale.machines import Box

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
