"""Write a verdict as Markdown: three lines, the levers, what to measure next, the sources."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline.measure.wording import number, sentence, surplus, table
from pipeline.roi.levers.gain import Gain, Side, together, widest
from pipeline.roi.verdict import Verdict

OVERLAP = (
    "Levers on the step overlap: their gains do not add up. What makes launches or all-reduces"
    " cheaper speeds plain decoding too, so measure the baseline again after each."
)


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


def headline(verdict: Verdict) -> list[str]:
    """Return three lines: where it stands, how far from paying, what to invest in."""
    at = verdict.situation
    name = sentence(at.drafter)
    pays = "pays" if at.speed_up > 1 else "does not pay"
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
    sure = best.factor.low > 1 and best is not verdict.gains[0]
    why = ", the most that gains even at its low end" if sure else ""
    speed, times = _speeds(verdict, best)
    third = f"**Next:** {best.name}{why}: {speed} tok/s ({times}x the baseline)."
    return [first, second, third]


def next_lever(verdict: Verdict) -> tuple[str, str, str]:
    """Return the lever to pull with the tok/s and the times the baseline that it gives."""
    at, best = verdict.situation, verdict.first
    if best is None:
        return ("keep it as it is" if at.speed_up > 1 else "decode plainly", "–", "–")
    return (best.name, *_speeds(verdict, best))


def lever_table(verdict: Verdict, sources: Sources | None = None) -> str:
    """Write the levers with the ends of the speed they give, their basis and source.

    Args:
        verdict: What was judged.
        sources: Takes public sources, which several tables name; without it each is written out.
    """
    rows = []
    for gain in verdict.gains:
        speed, times = _speeds(verdict, gain)
        name = f"{gain.name} (bound)" if gain.limits else gain.name
        source = gain.factor.source
        said = sources.cite(source) if sources else f": {source}"
        rows.append((name, gain.change, f"{gain.factor.basis}{said}", speed, times))
    head = ("lever", "from → to", "basis", "tok/s", "x baseline")
    return table(head, rows, text=3)


def _speeds(verdict: Verdict, gain: Gain) -> tuple[str, str]:
    """Return the tok/s that a lever gives, and the times the baseline."""
    at = verdict.situation
    low, high = gain.tok_s(at.tok_s)
    speed = "–" if gain.side is Side.LOAD else _ends(low, high)
    return speed, _ends(low / at.baseline_tok_s, high / at.baseline_tok_s)


def _ends(low: float, high: float) -> str:
    """Write a range, or one number where its ends look alike."""
    return number(low) if number(low) == number(high) else f"{number(low)}–{number(high)}"


def what_next(verdict: Verdict) -> str:
    """Say what two levers do together and which measurement narrows the most."""
    said = narrowing(verdict)
    return "\n\n".join(filter(None, [pair(verdict), f"**Measure next:** {said}." if said else ""]))


def pair(verdict: Verdict) -> str:
    """Say what the best lever of each side do together, "" where one side has none."""
    at, found = verdict.situation, together(list(verdict.gains))
    if found is None:
        return ""
    a, b, low, high = found
    return (
        f"**Two levers together** ({a.name}; {b.name}): they multiply,"
        f" {_ends(at.tok_s * low, at.tok_s * high)} tok/s,"
        f" {_ends(at.speed_up * low, at.speed_up * high)}x the baseline."
    )


def narrowing(verdict: Verdict) -> str:
    """Say which measurement narrows the lever that is known least, "" where none is a range."""
    found = widest([g for g in verdict.gains if g.side in (Side.ACCEPT, Side.STEP)])
    if found is None:
        return ""
    spread = f"{found.factor.spread:.2f}"
    return f"{found.name} is known only within a factor of {spread}; {found.narrowed_by}"


class Sources:
    """The sources that were cited so far."""

    def __init__(self) -> None:
        """Begin without any."""
        self._numbers: dict[str, int] = {}

    def cite(self, source: str) -> str:
        """Return what stands behind a basis: ` [1]` for a public source, else the text itself."""
        if "https://" not in source:
            return f": {source}"
        return f" [{self._numbers.setdefault(source, len(self._numbers) + 1)}]"

    def listed(self) -> str:
        """Return the sources as a list with their addresses folded into links, "" for none."""
        return "\n".join(f"- [{n}] {_linked(text)}" for text, n in self._numbers.items())


def _linked(text: str) -> str:
    """Return a text with its addresses folded into links."""
    return re.sub(r"https://[^\s,;)]+", lambda found: f"[source]({found.group()})", text)
