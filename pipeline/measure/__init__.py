"""From raw responses to figures: every formula of the product, each defined once, in here.

All rates are ratios of sums over requests, never means of ratios. The token that prefill samples
is never counted as committed. Repetitions of a prompt are pooled. Prompts that loop in any arm and
prompts whose responses took no verify step are left out of every figure.
"""

from pipeline.measure.figures import Figures, Measurement, accept_rate, measure
from pipeline.measure.speed_up import Levers, Versus

__all__ = ["Figures", "Levers", "Measurement", "Versus", "accept_rate", "measure"]
