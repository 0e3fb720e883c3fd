"""Known faults of drafters: too wide, too long, too dear, on the wrong text, or broken."""

from __future__ import annotations

from pipeline.measure.wording import number, percent
from pipeline.roi.advisor.cell_view import Rule, Seen
from pipeline.roi.levers.width import best_width

DEAR = 1.3  # verify over a plain forward
BROKEN = 1.1  # accept length at which a trained drafter might as well not be there
DRAFT_SHARE = 0.25  # of the step
LOOPS = 0.2  # share of prompts whose response ends in a loop


def wide_tree(seen: Seen) -> str:
    """A tree on a machine where more rows are dear."""
    levers = seen.levers
    if levers is None or not seen.is_tree or levers.accept_length >= levers.break_even:
        return ""
    if levers.verify_ms < DEAR * levers.decode_ms:
        return ""
    return (
        f"a tree of width {levers.width} costs {number(levers.verify_ms / levers.decode_ms)} plain"
        f" forwards and breaks even at {levers.break_even:.2f}, accept length is"
        f" {levers.accept_length:.2f}: narrow the tree first, a chain before anything else"
    )


def copying_on_prose(seen: Seen) -> str:
    """A drafter that copies, on text that does not repeat itself."""
    if (
        not seen.abilities.copies_text
        or seen.measurement is None
        or seen.is_held
        or not seen.cheapest
    ):
        return ""
    lost = [
        f"{name} ({figures.versus.speed_up.value:.2f}x, a draft in"
        f" {percent(figures.draft_hit_rate)} of the steps)"
        for name, figures in seen.measurement.classes.items()
        if figures.versus and figures.versus.speed_up.high < 1
    ]
    if not lost:
        return ""
    return (
        f"the drafter copies, and {', '.join(lost)} has little to copy: serve it on other classes"
    )


def too_long(seen: Seen) -> str:
    """Draft tokens whose acceptance does not pay for their row."""
    levers, measurement = seen.levers, seen.measurement
    if levers is None or measurement is None or not seen.cheapest:
        return ""
    if seen.is_tree or seen.is_held or levers.width <= 2:
        return ""
    figures, drafts = measurement.overall, levers.width - 1
    row = max((figures.verify_ms - levers.decode_ms) / drafts, 0.0)
    draft = 0.0 if seen.abilities.copies_text else figures.draft_ms / drafts
    fixed = levers.step_ms - drafts * (row + draft)
    best = best_width(figures.accept_rate, fixed, row, draft)
    if best >= levers.width:
        return ""
    rate = figures.accept_rate[best - 1]
    return (
        f"at {number(row + draft)} ms a further token, position {best} is accepted in"
        f" {percent(rate)} of the steps that reach it: by these rates width {best} is the fastest,"
        f" not {levers.width}"
    )


def dear_draft(seen: Seen) -> str:
    """A drafter that accepts well and takes the gain itself."""
    levers, measurement = seen.levers, seen.measurement
    if levers is None or measurement is None:
        return ""
    share = measurement.overall.draft_ms / levers.step_ms
    without = levers.accept_length / (
        (levers.step_ms - measurement.overall.draft_ms) / levers.ms_per_token
    )
    if share < DRAFT_SHARE or without < 1 or levers.accept_length >= levers.break_even:
        return ""
    return (
        f"drafting takes {percent(share)} of the step; with drafts for nothing it would be"
        f" {without:.2f}x: capture the drafter, or compare each drafter at its own best width"
    )


def broken_drafter(seen: Seen) -> str:
    """A trained drafter that is never right."""
    levers = seen.levers
    if levers is None or seen.abilities.copies_text or seen.is_held or levers.width < 2:
        return ""
    if levers.accept_length > BROKEN:
        return ""
    return (
        f"accept length {levers.accept_length:.2f} of a trained drafter: suspect its vocabulary map"
        " or weights before its data; audit the map with `python -m drafters.vocab`, and never"
        " record this cell as a reference"
    )


def loops(seen: Seen) -> str:
    """Responses that end in a loop, which every drafter guesses."""
    if seen.measurement is None or seen.measurement.looping_share <= LOOPS:
        return ""
    return (
        f"{percent(seen.measurement.looping_share)} of the prompts end in a loop: they are left out"
        " of every cell, so choose other prompts or fewer tokens"
    )


RULES = (
    Rule("wide tree", "https://github.com/sgl-project/SpecForge/issues/164", wide_tree),
    Rule("copying on prose", "https://github.com/vllm-project/vllm/issues/16258", copying_on_prose),
    Rule("draft too long", "https://github.com/vllm-project/vllm/issues/21278", too_long),
    Rule("dear draft", "https://github.com/vllm-project/vllm/issues/20780", dear_draft),
    Rule("broken drafter", "https://github.com/sgl-project/SpecForge/pull/534", broken_drafter),
    Rule(
        "loops",
        "https://github.com/Blackwellboy/model-serving-minefield/issues/108",
        loops,
    ),
)
