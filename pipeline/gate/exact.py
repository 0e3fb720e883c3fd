"""Compare exactly what is exact: tokens, accepted tokens, steps and the engine's own counts.

A greedy cell on one machine gives the same counts in every run, so one change is a finding; no
statistics are needed. Acceptance is judged here and speed elsewhere: a drafter that got worse and a
step that got slower are two findings, whatever they make of tok/s together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from pipeline.cell.response import num_equal
from pipeline.gate.arm import Arm, accept_length
from pipeline.measure import accept_rate

Text = Callable[[int], str]
NEARLY_EQUAL = 1e-9
COUNTS = {  # of a proof: how a finding names each, and the sign of a change for the worse
    "graph_share": ("share of steps replayed from a graph", -1),
    "allreduces_per_step": ("all-reduces a step", 1),
    "fused_allreduces_per_step": ("fused all-reduces a step", -1),
}


class Weight(StrEnum):
    """The direction of a finding: `worse` and `changed` fail the gate."""

    WORSE = "worse"
    CHANGED = "changed"
    BETTER = "better"


@dataclass(frozen=True)
class Finding:
    """One exact difference between two runs of a cell.

    Attributes:
        kind: `output`, `acceptance`, `steps`, `engine` or `void`.
        weight: Its direction.
        cell: The cell's label.
        text: The value before and the value now, in one line.
        prompt: Id of the prompt where it began; "" for a difference of the whole cell.
        position: Output token where it began; -1 for a difference of more than one.
    """

    kind: str
    weight: Weight
    cell: str
    text: str
    prompt: str = ""
    position: int = -1

    @property
    def fails(self) -> bool:
        """Whether it fails the gate."""
        return self.weight is not Weight.BETTER

    @property
    def place(self) -> str:
        """The cell, prompt and output token, as far as it has them."""
        parts = [self.cell]
        if self.prompt:
            parts.append(f"prompt {self.prompt}")
        if self.position >= 0:
            parts.append(f"output token {self.position}")
        return ", ".join(parts)

    def __str__(self) -> str:
        """Write kind, weight, place and text in one line."""
        return f"{self.kind} {self.weight}: {self.place}: {self.text}"


def exact_findings(candidate: Arm, reference: Arm, text: Text) -> list[Finding]:
    """Return every exact difference between two runs of a cell, with the place where it began.

    Args:
        candidate: The tested version's run.
        reference: The other's run of the same cell and prompts.
        text: Gives a token's text by its id.
    """
    findings = [*_outputs(candidate, reference, text), *_engine(candidate, reference)]
    if candidate.fault and not reference.fault:
        findings.append(Finding("void", Weight.WORSE, candidate.label, candidate.fault))
    moved = {finding.prompt for finding in findings if finding.kind == "output"}
    both = [p for p in reference.answers if p in candidate.answers and p not in moved]
    steps = [
        finding for prompt in both if (finding := _steps(candidate, reference, prompt)) is not None
    ]
    return findings + _acceptance(candidate, reference, both or list(reference.answers)) + steps


def _outputs(candidate: Arm, reference: Arm, text: Text) -> Iterator[Finding]:
    """Yield the first output token of each prompt that differs."""
    for prompt, expected in reference.answers.items():
        got = candidate.answers.get(prompt)
        tokens = got.tokens if got else ()
        if tokens == expected.tokens:
            continue
        place = num_equal(expected.tokens, tokens)
        was, now = (_named(t[place : place + 1], text) for t in (expected.tokens, tokens))
        line = f"{now} instead of {was}"
        if place < len(expected.margins):
            line += f"; the reference's margin there was {expected.margins[place]:.2g} logits"
        yield Finding("output", Weight.CHANGED, reference.label, line, prompt, place)


def _named(token: tuple[int, ...], text: Text) -> str:
    """Write a token with its text, or the end of the response."""
    return f"{text(token[0])!r} ({token[0]})" if token else "the end"


def _acceptance(candidate: Arm, reference: Arm, prompts: list[str]) -> list[Finding]:
    """Return the change of accept length over prompts of equal output."""
    both = [[a.answers[p] for p in prompts if p in a.answers] for a in (reference, candidate)]
    was, now = map(accept_length, both)
    if abs(now - was) <= NEARLY_EQUAL:
        return []
    rates = (accept_rate(answers, reference.width) for answers in both)
    change = f"accept length {was:.4f} → {now:.4f} ({now / was - 1:+.2%})"
    by_position = ", ".join(
        f"{i}: {a:.1%} → {b:.1%}" for i, (a, b) in enumerate(zip(*rates, strict=True), 1)
    )
    line = f"{change}; accepted by draft position {by_position}" if by_position else change
    weight = Weight.WORSE if now < was else Weight.BETTER
    return [Finding("acceptance", weight, reference.label, line)]


def _steps(candidate: Arm, reference: Arm, prompt: str) -> Finding | None:
    """Return the verify step at which a prompt of equal output began to take other steps."""
    was, now = reference.answers[prompt].committed, candidate.answers[prompt].committed
    if was == now:
        return None
    step = next(i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b)
    position = sum(was[:step]) + 1  # token 0 is prefill's
    line = (
        f"{len(was)} → {len(now)} verify steps; step {step + 1} committed {now[step]} instead of"
        f" {was[step]} tokens"
    )
    more = {True: Weight.WORSE, False: Weight.BETTER}[len(now) > len(was)]
    weight = Weight.CHANGED if len(now) == len(was) else more
    return Finding("steps", weight, reference.label, line, prompt, position)


def _engine(candidate: Arm, reference: Arm) -> Iterator[Finding]:
    """Yield each of the engine's own counts that differs."""
    was, now = reference.proof, candidate.proof
    if was.capture != now.capture:
        line = f"steps ran as {now.capture} instead of {was.capture}"
        yield Finding("engine", Weight.CHANGED, reference.label, line)
    for field, (name, worse) in COUNTS.items():
        before, after = getattr(was, field), getattr(now, field)
        if abs(before - after) > NEARLY_EQUAL:
            weight = Weight.WORSE if (after - before) * worse > 0 else Weight.BETTER
            yield Finding("engine", weight, reference.label, f"{name} {before:g} → {after:g}")
