"""The outcome of a run of the gate, and how it is written.

It is written for the terminal, a pull request, a test report, GitHub, and as plain facts.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pipeline.gate.arm import PER_TOKEN, VERIFY, Arm, Pick, as_json, typical
from pipeline.gate.decision.promise import Promise
from pipeline.gate.decision.sequential import MetricVerdict, Verdict
from pipeline.gate.exact import Finding
from pipeline.measure.wording import number, table
from pipeline.record.record import write_atomically

COMMENT, JUNIT, FACTS = "comment.md", "junit.xml", "gate.json"
MOST_FINDINGS = 20  # a drafter that changed touches every prompt
TIMED_HEAD = ("timed", "reference", "candidate", "slower by", "proven", "ruled out", "power", "")
CELL_HEAD = ("cell", "accept length", "verify or decode ms", "draft ms", "host ms", "ms per token")
SPLIT: tuple[Pick, ...] = (VERIFY, lambda t: t.draft_ms, lambda t: t.host_ms, PER_TOKEN)


class GateVerdict(StrEnum):
    """The verdict on a version."""

    PASS = "pass"
    REGRESSION = "regression"
    NOT_COMPARABLE = "not comparable"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run of the gate.

    Attributes:
        verdict: The verdict on the candidate.
        mode: `side by side` or `recorded reference`.
        candidate: Name of the tested version.
        reference: Name of the version, or recording, that it was compared with.
        promise: The error rates and sizes declared for the timed metrics.
        differences: A line for each reason why the two cannot be compared.
        findings: Exact things that changed.
        timed: The verdict on each timed metric.
        arms: Each cell of the candidate and of the reference, as far as they ran.
        notes: Lines that a reader of the verdict must know.
        advice: The next step where nothing was decided; "" otherwise.
        figures: Ratios within the candidate's run, by name, of which more is worse: for the trend.
        seconds: Wall time.
        measured: How much was measured, in words.
    """

    verdict: GateVerdict
    mode: str
    candidate: str
    reference: str
    promise: Promise
    differences: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    timed: Sequence[MetricVerdict] = ()
    arms: Sequence[tuple[Arm, Arm]] = ()
    notes: Sequence[str] = ()
    advice: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    measured: str = ""

    @property
    def status(self) -> int:
        """The exit status: 2 where nothing can be said."""
        return {GateVerdict.PASS: 0, GateVerdict.REGRESSION: 1}.get(self.verdict, 2)


def verdict_of(
    differences: Sequence[str], findings: Sequence[Finding], times: Verdict
) -> GateVerdict:
    """Return the verdict: differences come first, then findings, then times."""
    if differences:
        return GateVerdict.NOT_COMPARABLE
    if any(f.fails for f in findings) or times is Verdict.REGRESSION:
        return GateVerdict.REGRESSION
    return GateVerdict.PASS if times is Verdict.PASS else GateVerdict.UNDECIDED


def write_all(outcome: Outcome, folder: Path) -> None:
    """Write the comment, the test report and the facts into a folder."""
    write_atomically(folder / COMMENT, markdown(outcome))
    write_atomically(folder / JUNIT, junit(outcome))
    write_atomically(folder / FACTS, json.dumps(facts(outcome), indent=1, ensure_ascii=False))


def terminal(outcome: Outcome) -> str:
    """Write an outcome as the tables and the verdict that a run ends with."""
    blocks = [f"candidate {outcome.candidate}\nreference {outcome.reference}"]
    blocks += [_aligned([head, *rows]) for head, rows in _tables(outcome)]
    said = [*_said(outcome), promised(outcome)]
    return "\n\n".join([*blocks, "\n".join(said), headline(outcome)])


def markdown(outcome: Outcome) -> str:
    """Write an outcome as the comment for a pull request."""
    blocks = [
        f"### specroi gate: {headline(outcome)}",
        f"`{outcome.candidate}` against `{outcome.reference}`, {outcome.mode}"
        f" ({outcome.seconds:.0f} s)",
    ]
    if said := _said(outcome):
        blocks.append("\n".join(f"- {line}" for line in said))
    blocks += [table(head, rows) for head, rows in _tables(outcome)]
    return "\n\n".join([*blocks, promised(outcome)]) + "\n"


def junit(outcome: Outcome) -> str:
    """Write an outcome as a test report: a case per exact check and per timed metric.

    A difference and an undecided metric are errors, not failures: nothing was found.
    """
    suite = ElementTree.Element("testsuite", name="specroi gate", time=f"{outcome.seconds:.1f}")
    _case(suite, "comparable", "error", list(outcome.differences))
    for ours, _ in outcome.arms:
        found = [str(f) for f in outcome.findings if f.fails and f.cell == ours.label]
        _case(suite, f"{ours.label}: exact", "failure", found)
    for timed, row in zip(outcome.timed, timed_rows(outcome), strict=True):
        line = ", ".join(f"{h} {v}" for h, v in zip(TIMED_HEAD[1:-1], row[1:-1], strict=True))
        kind = {"regression": "failure", "undecided": "error"}.get(timed.verdict, "")
        exact = any(f.fails for f in outcome.findings)  # then measuring ended before times were
        _case(suite, timed.name, "skipped" if kind == "error" and exact else kind, [line])
    for kind in ("failure", "error", "skipped"):
        name = {"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]
        suite.set(name, str(len(suite.findall(f"testcase/{kind}"))))
    suite.set("tests", str(len(suite)))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def _case(suite: ElementTree.Element, name: str, kind: str, lines: Sequence[str]) -> None:
    """Add a case to a test report; one without a kind or without lines passes."""
    case = ElementTree.SubElement(suite, "testcase", classname="gate", name=name)
    if kind and lines:
        ElementTree.SubElement(case, kind, message=lines[0]).text = "\n".join(lines)


def github_lines(outcome: Outcome) -> str:
    """Write findings, slow metrics and notes as GitHub's workflow commands; "" anywhere else."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return ""
    lines = [f"::error title=specroi gate::{_escaped(str(f))}" for f in outcome.findings if f.fails]
    lines += [
        f"::error title=specroi gate::{_escaped(f'{t.name} is {t.slow_down:.1%} slower')}"
        for t in outcome.timed
        if t.verdict == "regression"
    ]
    if outcome.verdict in (GateVerdict.NOT_COMPARABLE, GateVerdict.UNDECIDED):
        lines += [
            f"::error title=specroi gate {outcome.verdict}::{_escaped(line)}"
            for line in (*outcome.differences, outcome.advice)
            if line
        ]
    lines += [f"::warning title=specroi gate::{_escaped(n)}" for n in outcome.notes]
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    """Escape a text for a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def facts(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data."""
    data = asdict(outcome) | {
        "arms": [[as_json(ours), as_json(theirs)] for ours, theirs in outcome.arms],
        "timed": [{k: _finite(v) for k, v in asdict(t).items()} for t in outcome.timed],
        "findings": [asdict(f) | {"fails": f.fails} for f in outcome.findings],
        "status": outcome.status,
    }
    return {name: data[name] for name in sorted(data)}


def _finite(value: Any) -> Any:
    """Replace a number that is none by null: JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _said(outcome: Outcome) -> list[str]:
    """Return differences, findings, notes and advice, a line each."""
    findings = [str(f) for f in outcome.findings]
    more = len(findings) - MOST_FINDINGS
    shown = findings[:MOST_FINDINGS] + ([f"… and {more} more, in {FACTS}"] if more > 0 else [])
    return [
        *(f"not comparable: {line}" for line in outcome.differences),
        *shown,
        *outcome.notes,
        *([outcome.advice] if outcome.advice else []),
    ]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Align rows to columns: words to the left, figures to the right."""
    first, *others = ([*column] for column in zip(*rows, strict=True))
    words = [text.ljust(max(map(len, first))) for text in first]
    figures = [[text.rjust(max(map(len, column))) for text in column] for column in others]
    return "\n".join("  ".join(row).rstrip() for row in zip(words, *figures, strict=True))


def headline(outcome: Outcome) -> str:
    """Write the verdict and its reason in a line."""
    reasons = {
        GateVerdict.PASS: "nothing exact changed, and no slow-down of"
        f" {outcome.promise.min_effect:.1%} is left possible",
        GateVerdict.REGRESSION: _regression(outcome),
        GateVerdict.NOT_COMPARABLE: f"{len(outcome.differences)} differences",
        GateVerdict.UNDECIDED: "the noise was too large to tell",
    }
    return f"{str(outcome.verdict).upper()}: {reasons[outcome.verdict]}"


def _regression(outcome: Outcome) -> str:
    """Name the first failing finding, and the timed metric that is slowest."""
    parts = [f"{f.kind} of {f.place}" for f in outcome.findings if f.fails][:1]
    more = sum(f.fails for f in outcome.findings) - 1
    if more > 0:
        parts.append(f"{more} more findings")
    slow = [t for t in outcome.timed if t.verdict == "regression"]
    if slow:
        worst = max(slow, key=lambda t: t.slow_down)
        parts.append(f"{worst.name} is {worst.slow_down:.1%} slower")
    return "; ".join(parts)


def promised(outcome: Outcome) -> str:
    """Write the declared rates, and how much was measured for them."""
    promise = outcome.promise
    return (
        f"{outcome.measured}; declared: {promise.alpha:.1%} false alarms over all timed metrics,"
        f" {promise.power:.0%} of slow-downs of {promise.min_effect:.1%} do not pass"
    )


def _tables(outcome: Outcome) -> Iterator[tuple[Sequence[str], list[list[str]]]]:
    """Yield the head and the rows of each table that has any."""
    for head, rows in ((TIMED_HEAD, timed_rows(outcome)), (CELL_HEAD, cell_rows(outcome))):
        if filled := list(rows):
            yield head, filled


def timed_rows(outcome: Outcome) -> Iterator[list[str]]:
    """Yield a row per timed metric; slow-downs are percent of the reference's time."""
    for t in outcome.timed:
        proven = f"≥ {_share(t.at_least)}" if math.isfinite(t.at_least) else "–"
        ruled = f"> {_share(t.at_most)}" if math.isfinite(t.at_most) else "–"
        times = (number(t.reference), number(t.candidate), _share(t.slow_down))
        yield [t.name, *times, proven, ruled, t.power, t.verdict]


def cell_rows(outcome: Outcome) -> Iterator[list[str]]:
    """Yield a row per cell: the reference's figures, then the candidate's where they differ."""
    for ours, theirs in outcome.arms:
        lengths = _change(f"{theirs.accept_length:.4f}", f"{ours.accept_length:.4f}")
        both = ([number(typical(cell, pick)) for cell in (theirs, ours)] for pick in SPLIT)
        yield [ours.label, lengths, *(_change(was, now) for was, now in both)]


def _change(was: str, now: str) -> str:
    return was if was == now else f"{was} → {now}"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.1%}"
