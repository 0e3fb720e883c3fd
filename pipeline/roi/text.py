"""Write a verdict as Markdown: three lines, the levers, what to measure next, the sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from pipeline.measure.wording import number, sentence, surplus, table
from pipeline.roi.levers.gain import Gain, Side, together, widest
from pipeline.roi.verdict import ClassVerdict, Ground, Verdict

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
    said = narrowing(verdict)
    yield "\n\n".join(filter(None, [pair(verdict), f"**Measure next:** {said}." if said else ""]))


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
    return [first, second, f"**Next:** {next_step(verdict)}"]


def next_step(verdict: Verdict) -> str:
    """Say what to invest in next and why, with what would settle it where it is a bound."""
    found = verdict.decision
    name, speed, times = next_lever(verdict)
    if not found.levers:
        if found.ground is Ground.KEEP:
            return f"no lever is likely to raise the speed; {name}."
        return f"no lever is known to close the gap, alone or with another; {name}."
    gives = f"{speed} tok/s ({times}x the baseline)"
    if found.ground is Ground.BOUND:
        rivals = found.rivals
        only = "the only lever" if rivals == 1 else f"the nearest of {rivals} bounds"
        settle = found.levers[0].narrowed_by
        return (
            f"{found.levers[0].name}, a bound, but {only} that could close the gap alone: at most"
            f" {gives}. To settle it, {settle}."
        )
    if found.ground is Ground.TOGETHER:
        return f"{name}: neither closes the gap alone, together they give {gives}."
    return f"{name}{_why(verdict)}: {gives}."


def _why(verdict: Verdict) -> str:
    """Say how sure the next lever is, where that is not plain from its being the first."""
    found = verdict.decision
    if found.ground is Ground.ABLE:
        return ", which closes the gap at its high end"
    sure = found.levers[0].factor.low > 1 and found.levers[0] is not verdict.gains[0]
    return ", the most that gains even at its low end" if sure else ""


def next_lever(verdict: Verdict) -> tuple[str, str, str]:
    """Return what to invest in next, the tok/s and the times the baseline that it gives."""
    at, found = verdict.situation, verdict.decision
    if not found.levers:
        return ("keep it as it is" if found.ground is Ground.KEEP else "decode plainly", "–", "–")
    name = ", with ".join(_name(lever) for lever in found.levers)
    low, high = found.ends(at.tok_s)
    return name, _ends(low, high), _ends(low / at.baseline_tok_s, high / at.baseline_tok_s)


def _name(gain: Gain) -> str:
    """Return a lever's name, marked where it is a bound."""
    return f"{gain.name} (bound)" if gain.limits else gain.name


def lever_table(verdict: Verdict, cited: dict[str, int] | None = None) -> str:
    """Write the levers with the ends of the speed they give, their basis and source.

    Args:
        verdict: What was judged.
        cited: Takes public sources with their numbers, for several tables name the same; without
            it each is written out.
    """
    at, rows = verdict.situation, []
    for gain in verdict.gains:
        low, high = gain.tok_s(at.tok_s)
        speed = "–" if gain.side is Side.LOAD else _ends(low, high)
        times = _ends(low / at.baseline_tok_s, high / at.baseline_tok_s)
        said = f": {gain.factor.source}"
        if cited is not None and "https://" in said:
            said = f" [{cited.setdefault(gain.factor.source, len(cited) + 1)}]"
        rows.append((_name(gain), gain.change, f"{gain.factor.basis}{said}", speed, times))
    head = ("lever", "from → to", "basis", "tok/s", "x baseline")
    return table(head, rows, text=3)


def _ends(low: float, high: float) -> str:
    """Write a range, or one number where its ends look alike."""
    return number(low) if number(low) == number(high) else f"{number(low)}–{number(high)}"


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
    """Say which measurement narrows the lever that is known least, "" where none is a range.

    Where the decision is a bound, what settles that comes before anything else.
    """
    decision = verdict.decision
    if decision.ground is Ground.BOUND:
        (bound,) = decision.levers
        return f"{bound.name} is only a bound; {bound.narrowed_by}"
    found = widest([g for g in verdict.gains if g.side in (Side.ACCEPT, Side.STEP)])
    if found is None:
        return ""
    spread = f"{found.factor.spread:.2f}"
    return f"{found.name} is known only within a factor of {spread}; {found.narrowed_by}"


def class_headlines(verdicts: Iterable[ClassVerdict]) -> Iterator[str]:
    """Yield the three lines of each workload class under its heading."""
    for found in verdicts:
        yield f"## {found.category}: {found.name}"
        yield "\n".join(f"- {line}" for line in headline(found.verdict))


def class_levers(verdicts: Sequence[ClassVerdict]) -> Iterator[str]:
    """Yield each class's table of levers, and once what holds for all of them."""
    if not verdicts:
        return
    cited: dict[str, int] = {}
    yield "## What each lever is worth"
    yield f"Largest gain first; effort is yours to weigh. {OVERLAP}"
    for found in verdicts:
        yield f"### {found.category}: {found.name}"
        yield lever_table(found.verdict, cited)
        if said := pair(found.verdict):
            yield said
    if cited:  # with their addresses folded into links
        listed = "\n".join(f"- [{n}] {text}" for text, n in cited.items())
        yield re.sub(r"https://[^\s,;)]+", r"[source](\g<0>)", listed)
