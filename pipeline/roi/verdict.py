"""Everything that follows from one situation: break-even, levers in order, what to measure next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.roi.accept_levers import accept_levers
from pipeline.roi.clashes import clashes
from pipeline.roi.gains import Gain, Side, ranked, together, widest
from pipeline.roi.ranges import Basis
from pipeline.roi.settings import Numbers
from pipeline.roi.situation import Situation, close
from pipeline.roi.step_levers import step_levers
from pipeline.wording import number, sentence, surplus, table

OVERLAP = (
    "Levers on the step overlap: their gains do not add up. What makes launches or all-reduces"
    " cheaper speeds plain decoding too, so measure the baseline again after each."
)


@dataclass(frozen=True)
class Verdict:
    """A situation and what can be done about it.

    Attributes:
        situation: Where someone stands.
        gains: The levers by gain, bounds last.
        clashes: What in the numbers cannot be true.
    """

    situation: Situation
    gains: tuple[Gain, ...]
    clashes: tuple[str, ...]

    @property
    def first(self) -> Gain | None:
        """The lever to pull: the most gain among those that gain at their low end, else of all."""
        able = [g for g in self.gains if not g.limits and g.side is not Side.LOAD]
        sure = (g for g in able if g.factor.low > 1)
        return next(sure, next((g for g in able if g.factor.middle > 1), None))


def from_numbers(numbers: Numbers) -> Verdict:
    """Judge typed-in numbers.

    Raises:
        ValueError: They are too few or impossible.
    """
    at = close(numbers)
    return judge(at, numbers)


def judge(at: Situation, numbers: Numbers, extra: tuple[Gain, ...] = ()) -> Verdict:
    """Judge a situation; `extra` are levers that were measured as cells of their own."""
    gains = [*extra, *accept_levers(at, numbers), *step_levers(at, numbers)]
    gains = [g for g in gains if g.factor.high > 1 or g.factor.basis is Basis.ASSUMED]
    return Verdict(at, tuple(ranked(gains)), tuple(clashes(at)))


def lines(verdict: Verdict) -> Iterator[str]:
    """Yield the verdict as Markdown blocks: three lines in words first."""
    yield "\n".join(f"- {line}" for line in headline(verdict))
    if verdict.situation.assumptions:
        yield "Assumed: " + "; ".join(verdict.situation.assumptions) + "."
    if verdict.clashes:
        yield "**What does not fit**\n\n" + "\n".join(f"- {c}." for c in verdict.clashes)
    yield "**What each lever is worth**, largest gain first; effort is yours to weigh"
    yield lever_table(verdict)
    yield OVERLAP
    yield what_next(verdict)


def headline(verdict: Verdict, decided: bool = True) -> list[str]:
    """Return three lines: where it stands, how far from paying, what to invest in.

    Args:
        verdict: What was judged.
        decided: The speed-up's interval lies on one side of 1, or none is known.
    """
    at = verdict.situation
    name = sentence(at.drafter)
    pays = "pays" if at.speed_up > 1 else "does not pay"
    if not decided:
        pays = "is undecided, too few prompts"
    first = (
        f"**{name} {pays}:** {number(at.tok_s)} against {number(at.baseline_tok_s)} tok/s,"
        f" {at.speed_up:.2f}x; a step takes {number(at.step_ms)} ms."
    )
    bound = (
        f" (verify alone would say {at.levers.break_even_floor:.2f}, a lower bound)"
        if at.overhead_ms >= 0  # not known, or more than the step: it bounds nothing
        else ""
    )
    distance = surplus(at.levers)
    second = (
        f"**Break-even accept length is {at.levers.break_even:.2f}**{bound}; it is"
        f" {at.accept_length:.2f}, {abs(distance):.2f} {'above' if distance >= 0 else 'short'}."
    )
    best = verdict.first
    if best is None:
        rest = "keep it as it is" if at.speed_up > 1 else "decode plainly"
        return [first, second, f"**Next:** no lever is likely to raise the speed; {rest}."]
    low, high = best.tok_s(at.tok_s)
    sure = best.factor.low > 1 and best is not verdict.gains[0]
    why = ", the most that gains even at its low end" if sure else ""
    return [
        first,
        second,
        f"**Next:** {best.name}{why}: {_ends(low, high)} tok/s"
        f" ({_ends(low / at.baseline_tok_s, high / at.baseline_tok_s)}x the baseline).",
    ]


def lever_table(verdict: Verdict, linked: bool = False) -> str:
    """Write the levers with the ends of the speed they give, their basis and source.

    Args:
        verdict: What was judged.
        linked: Fold addresses into links, for a page; in a terminal they stay readable.
    """
    at = verdict.situation
    rows = []
    for gain in verdict.gains:
        low, high = gain.tok_s(at.tok_s)
        name = f"{gain.name} (bound)" if gain.limits else gain.name
        speed = "–" if gain.side is Side.LOAD else _ends(low, high)
        times = _ends(low / at.baseline_tok_s, high / at.baseline_tok_s)
        basis = f"{gain.factor.basis}: {gain.factor.source}"
        rows.append((name, gain.change, _linked(basis) if linked else basis, speed, times))
    head = ("lever", "from → to", "basis", "tok/s", "x baseline")
    return table(head, rows, text=3)


def _linked(text: str) -> str:
    """Return the text with its addresses folded into links."""
    return re.sub(r"https://[^\s,;)]+", lambda found: f"[source]({found.group()})", text)


def _ends(low: float, high: float) -> str:
    """Write a range, or one number where its ends look alike."""
    return number(low) if number(low) == number(high) else f"{number(low)}–{number(high)}"


def what_next(verdict: Verdict) -> str:
    """Say what two levers do together and which measurement narrows the most."""
    at, said = verdict.situation, []
    pair = together(list(verdict.gains))
    if pair:
        a, b, low, high = pair
        speed = _ends(at.tok_s * low, at.tok_s * high)
        said.append(
            f"**Two levers together** ({a.name}; {b.name}): they multiply, {speed} tok/s,"
            f" {_ends(at.speed_up * low, at.speed_up * high)}x the baseline."
        )
    unsure = widest([g for g in verdict.gains if g.side in (Side.ACCEPT, Side.STEP)])
    if unsure:
        said.append(
            f"**Measure next:** {unsure.narrowed_by}; {unsure.name} is known only within a factor"
            f" of {unsure.factor.spread:.2f}."
        )
    return "\n\n".join(said)
