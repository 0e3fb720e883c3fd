"""Which lever moved speed in a grid: the verify step, or the drafter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pipeline.judge.comparison import Comparison
from pipeline.measure import Figures
from pipeline.measure.wording import number

ALIKE = 1.1  # two factors that are no further apart are called alike
VERIFY, DRAFTER = "verify", "drafter"
WORDS = {VERIFY: "the verify step", DRAFTER: "the drafter"}


class Exchange(NamedTuple):
    """The fastest drafted cell beside the slowest that differs from it in one lever only.

    Attributes:
        lever: What differs.
        before: The slowest cell's name.
        slow: Its figures over all classes.
        after: The fastest drafted cell's name.
        fast: Its figures.
    """

    lever: str
    before: str
    slow: Figures
    after: str
    fast: Figures

    @property
    def factor(self) -> float:
        """How many times as fast the exchange made it, each beside its own baseline."""
        return self.fast.speed_up / self.slow.speed_up


def moved(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say what exchanging each lever of the fastest drafted cell did, "" where one was not varied.

    The larger factor comes first. A drafter's exchange may be with plain decoding.
    """
    found = [e for lever in (VERIFY, DRAFTER) if (e := _exchange(comparison, names, lever))]
    if len(found) < 2:
        return ""
    most, least = sorted(found, key=lambda exchange: -exchange.factor)
    heading = f"Here {WORDS[most.lever]} moved speed more than {WORDS[least.lever]}:"
    if most.factor < ALIKE * least.factor:
        heading = "The verify step and the drafter moved speed alike here:"
    return f"**{heading}** over all classes, {_told(most)}; {_told(least)}."


def _exchange(comparison: Comparison, names: Mapping[str, str], lever: str) -> Exchange | None:
    """Return the exchange of one lever; None without another cell that shares all the rest."""
    params = {r.cell_id: r.params for r in comparison.records}
    figures = {k: m.overall for k, m in comparison.measurements.items() if m.overall.versus}
    drafted = [k for k in figures if not comparison.measurements[k].is_baseline]
    if not drafted:
        return None
    best = max(drafted, key=lambda key: figures[key].speed_up)
    kept = DRAFTER if lever == VERIFY else VERIFY
    others = [
        key for key in figures if key != best and _of(params[key], kept) == _of(params[best], kept)
    ]
    if not others:
        return None
    worst = min(others, key=lambda key: figures[key].speed_up)
    return Exchange(lever, names[worst], figures[worst], names[best], figures[best])


def _of(params: Mapping[str, str], lever: str) -> dict[str, str]:
    """Return the settings of one lever."""
    return {key: value for key, value in params.items() if key.split(".")[0] == lever}


def _told(exchange: Exchange) -> str:
    """Say what one exchange did, and what changed in a step."""
    slow, fast = exchange.slow, exchange.fast
    length = _from_to(slow.accept_length.value, fast.accept_length.value)
    cost = _from_to(*(f.versus.levers.break_even for f in (slow, fast) if f.versus))
    return (
        f"{exchange.after} instead of {exchange.before} is {number(exchange.factor)} times as fast"
        f" ({slow.speed_up:.2f}x → {fast.speed_up:.2f}x the best baseline: a step commits"
        f" {length} tokens and costs the time of {cost} plain ones)"
    )


def _from_to(before: float, after: float) -> str:
    """Write a change, or that there is none."""
    if f"{before:.2f}" == f"{after:.2f}":
        return f"still {after:.2f}"
    return f"{before:.2f} → {after:.2f}"
