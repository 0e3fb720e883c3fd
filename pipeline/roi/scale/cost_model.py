"""The fitted cost model: coefficients from one machine, steps of others, and how far off it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pipeline.roi.public_figures import Curve
from pipeline.roi.scale import measured
from pipeline.roi.scale.fit import cost, fit
from pipeline.roi.scale.forward_cost import KIMI_K2_5, ScaleTarget
from pipeline.roi.scale.machines import PCIE8, Box
from pipeline.roi.scale.terms import Terms, Work, terms

# µs a launch from the host: a lean engine's 1800 launches in 8 ms, and the pivot's 30 ms verify
# over the kernels of its 61 layers.
LAUNCH_US = (4.4, 25.0)
LAUNCH_SOURCE = (
    "https://github.com/kekzl/imp/pull/856 (1800 launches, 8 ms); a verify of 30 ms over"
    f" {KIMI_K2_5.kernels} kernels"
)


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
