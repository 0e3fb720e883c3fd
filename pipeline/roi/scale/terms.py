"""What a forward costs, term by term, before any coefficient is fitted."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.roi.public_figures import Curve
from pipeline.roi.scale.forward_cost import ScaleTarget
from pipeline.roi.scale.machines import Box


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
