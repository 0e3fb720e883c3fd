"""Fit the coefficients of a forward's cost to one machine's public measurements, and check them.

The measurements stand in this module with their source. Plain decoding and drafting for one request
are fitted; drafting for several requests is held back to say how far off the model is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pipeline.roi.public_figures import CUSTOM_PCIE_8, Curve
from pipeline.roi.scale import cost_model as measured
from pipeline.roi.scale.forward_cost import KIMI_K2_5, PCIE8, Box, ScaleTarget, Terms, Work, terms

# µs a launch from the host: a lean engine's 1800 launches in 8 ms, and the pivot's 30 ms verify
# over the kernels of its 61 layers.
LAUNCH_US = (4.4, 25.0)
LAUNCH_SOURCE = (
    "https://github.com/kekzl/imp/pull/856 (1800 launches, 8 ms); a verify of 30 ms over"
    f" {KIMI_K2_5.kernels} kernels"
)
SOURCE = "https://github.com/local-inference-lab/rtx6kpro/blob/master/models/kimi-k26-v4.md"
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)
DRAFT_TOKENS = 3
# That machine ran its own one-shot all-reduce up to 56 KiB and NCCL above.
_SIZES = (0.25, 8.0, 32.0, 56.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0)
ALLREDUCE = Curve(
    _SIZES,
    tuple(CUSTOM_PCIE_8.at(kib) if kib <= 56 else PCIE8.nccl[0].at(kib) for kib in _SIZES),
    SOURCE + " (one-shot up to 56 KiB)",
)
PLAIN_TOK_S = {
    0: (92.4, 151.3, 239.5, 350.9, 636.2, 957.7, 1497.3, 2222.6),
    16384: (81.5, 134.9, 207.2, 298.9, 489.5),
    32768: (73.4, 123.3, 183.2, 261.8),
    65536: (60.5, 106.2, 149.3),
    131072: (46.1, 83.6),
}
DRAFTED_TOK_S = {
    0: (122.0, 176.6, 337.7, 492.6, 754.1, 1129.0, 1675.0, 2245.8),
    16384: (103.8, 171.9, 254.7, 351.7, 484.6),
    32768: (92.9, 136.9, 207.8, 265.8),
    65536: (74.6, 115.8, 155.1),
    131072: (58.3, 78.7),
}
ACCEPT_RATE = {
    0: (0.494, 0.353, 0.368, 0.493, 0.354, 0.370, 0.396, 0.417),
    16384: (0.347, 0.386, 0.421, 0.352, 0.359),
    32768: (0.317, 0.462, 0.344, 0.349),
    65536: (0.581, 0.347, 0.441),
    131072: (0.333, 0.211),
}


@dataclass(frozen=True)
class CostModel:
    """Coefficients and how far off they are where they were not fitted.

    Attributes:
        coefficients: By term.
        fitted: Absolute relative errors on the steps that were fitted.
        checked: The same on steps that were not.
    """

    coefficients: Terms
    fitted: tuple[float, ...]
    checked: tuple[float, ...]

    @property
    def spread(self) -> float:
        """How far off a step may be: the 90th percentile on steps that were not fitted."""
        return float(np.quantile(self.checked, 0.9))

    def step_ms(
        self, target: ScaleTarget, box: Box, work: Work, curve: Curve, drafts: bool
    ) -> float:
        """Return a captured step's time; `drafts` adds the cost of a trained drafter."""
        found = terms(target, box, work, curve)
        found = found._replace(draft=found.draft * drafts)
        return cost(self.coefficients._replace(fixed=self.fixed_ms(target, box)), found)

    def fixed_ms(self, target: ScaleTarget, box: Box) -> float:
        """Return what a captured forward pays for its kernels' own latency."""
        return box.kernel_us * target.kernels / 1000 or self.coefficients.fixed


@lru_cache(maxsize=1)
def cost_model() -> CostModel:
    """Fit the model to the public measurements and check it on those that were left out."""
    steps = measured.to_fit()
    found = fit(KIMI_K2_5, PCIE8, measured.ALLREDUCE, steps)

    def error(work: Work, ms: float) -> float:
        return abs(cost(found, terms(KIMI_K2_5, PCIE8, work, measured.ALLREDUCE)) / ms - 1)

    return CostModel(
        found,
        tuple(error(s.work, s.ms) for s in steps),
        tuple(error(s.work, s.ms) for s, _ in measured.to_check()),
    )


def plain_steps() -> Iterator[Step]:
    """Yield plain decoding: a forward over as many rows as there are requests."""
    for context, speeds in PLAIN_TOK_S.items():
        for batch, tok_s in zip(REQUESTS, speeds, strict=False):
            yield Step(Work(batch, 1, context), 1000 * batch / tok_s)


def drafted_steps() -> Iterator[tuple[Step, float]]:
    """Yield speculative steps with their accept length: `1 + 3 × accept rate`."""
    for context, speeds in DRAFTED_TOK_S.items():
        for batch, tok_s, rate in zip(REQUESTS, speeds, ACCEPT_RATE[context], strict=False):
            length = 1 + DRAFT_TOKENS * rate
            work = Work(batch, DRAFT_TOKENS + 1, context)
            yield Step(work, 1000 * batch * length / tok_s), length


def to_fit() -> list[Step]:
    """Return what coefficients are fitted to: plain decoding, and drafting for one request."""
    return [*plain_steps(), *(s for s, _ in drafted_steps() if s.work.batch == 1)]


def to_check() -> list[tuple[Step, float]]:
    """Return what they are checked on: drafting for two to 128 requests."""
    return [(s, length) for s, length in drafted_steps() if s.work.batch > 1]


class Step(NamedTuple):
    """One measured step.

    Attributes:
        work: What it did.
        ms: Its wall time.
    """

    work: Work
    ms: float


def fit(target: ScaleTarget, box: Box, curve: Curve, steps: Sequence[Step]) -> Terms:
    """Return the coefficients with the least relative squared error, none negative.

    Raises:
        ValueError: Fewer steps than terms.
    """
    width = len(Terms._fields)
    if len(steps) < width:
        raise ValueError(f"{len(steps)} measured steps: the cost model has {width} terms to fit")
    from scipy.optimize import nnls  # 0.3 s, which only a question of scale pays

    rows = np.array([terms(target, box, s.work, curve) for s in steps])
    found, _ = nnls(rows / np.array([s.ms for s in steps])[:, None], np.ones(len(steps)))
    return Terms(*map(float, found))


def cost(coefficients: Terms, found: Terms) -> float:
    """Return the ms of a captured step."""
    return sum(c * t for c, t in zip(coefficients, found, strict=True))
