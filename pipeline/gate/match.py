"""Interleave two loaded versions, prompt by prompt in an order that coins draw."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from pipeline.cell.response import Response
from pipeline.gate.arm import Arm, times
from pipeline.gate.comparable import differences
from pipeline.gate.decision.promise import Plan, candidate_first, plan_rounds
from pipeline.gate.decision.sequential import Decision, Verdict, decide
from pipeline.gate.exact import Finding, Text, exact_findings
from pipeline.gate.figures import PER_TOKEN, VERIFY, Pick
from pipeline.gate.settings import GateSettings, cell_jobs
from pipeline.gate.versions.version import Version

Say = Callable[[str], None]
Both = Mapping[tuple[int, int], tuple[Response, Response]]  # by prompt and cell; candidate's first
PER_CELL = 2  # timed metrics: the verify (or decode) step, and all of a token


@dataclass
class Match:
    """Two versions that answer the same prompts, interleaved, until something is clear.

    Attributes:
        candidate: The tested version.
        reference: The version that it is compared with.
        settings: The gate's settings.
        text: Gives a token's text by its id.
        say: Takes lines of progress.
        begun: `time.monotonic` when the gate began; `max_seconds` counts from here.
        differences: A line for each reason why the two cannot be compared.
        findings: Exact differences.
        values: By timed metric, log(candidate / reference) of each pair.
        decision: The decision on times, once there are pairs enough for a look.
        plan: The plan that was fixed before the first pair was looked at.
        rounds: Rounds that both versions have finished.
    """

    candidate: Version
    reference: Version
    settings: GateSettings
    text: Text
    say: Say
    begun: float
    differences: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    decision: Decision | None = None
    plan: Plan | None = None
    rounds: int = 0

    def run(self) -> None:
        """Build both versions' cells, start them and measure round after round.

        Raises:
            SideFailed: A version cannot do it.
            ValueError: There are no prompts to compare, or too few rounds.
        """
        versions = (self.reference, self.candidate)
        for version in versions:
            version.begin_build(self.settings.cell_jobs)
        for version in versions:
            version.build()
        self._plan(len(self.candidate.prompts))  # refused here, before anything is loaded
        self._compare()
        if not self.differences:
            self._start(self.reference)
            self._same_threads()
            self._start(self.candidate)
            self._compare()
        if not self.differences:
            self._rounds()

    @property
    def arms(self) -> list[tuple[Arm, Arm]]:
        """The arms of each cell in both versions, the candidate's first."""
        return list(zip(self.candidate.arms(), self.reference.arms(), strict=True))

    def _start(self, version: Version) -> None:
        """Load a version's cells one after the other."""
        for cell, record in enumerate(version.records):
            self.say(f"starting {record.label} of {version.side.tree}")
            version.start(cell)

    def _same_threads(self) -> None:
        """Fix the candidate's threads to those that the reference found fastest.

        Two measurements of it, moments apart on a busy machine, may disagree.
        """
        threads = {record.settings.get("threads", "") for record in self.reference.records}
        jobs = self.settings.jobs_on(threads.pop()) if len(threads) == 1 else self.settings.jobs
        if jobs != self.settings.jobs:
            self.candidate.begin_build(cell_jobs(jobs))
            self.candidate.build()

    def _compare(self) -> None:
        """Note every reason against a comparison that has shown so far."""
        ours, theirs = self.candidate.arms(), self.reference.arms()
        self.differences = differences(ours, theirs, recorded=False)

    def _rounds(self) -> None:
        """Measure rounds until something is clear, or the budget is spent."""
        prompts, cells = list(range(len(self.candidate.prompts))), len(self.candidate.records)
        pairs = len(prompts) * cells * self.settings.max_rounds
        coins = iter(candidate_first(pairs, self.settings.seed))
        measuring = time.monotonic()
        for number in range(self.settings.max_rounds):
            self.say(f"round {number + 1}: {len(prompts)} prompts, {cells} cells, two versions")
            both = {
                (prompt, cell): self._pair(prompt, cell, next(coins))
                for prompt, cell in product(prompts, range(cells))
            }
            if number == 0:  # a prompt that takes no verify step somewhere has no times there
                silent = {
                    p for (p, _), answers in both.items() if not all(r.committed for r in answers)
                }
                prompts = [p for p in prompts if p not in silent]
                self.plan = self._plan(len(prompts))
            self._keep(both, prompts)
            now = time.monotonic()
            a_round = (now - measuring) / (number + 1)
            if self._is_clear() or now + a_round - self.begun > self.settings.max_seconds:
                return

    def _pair(self, prompt: int, cell: int, first: bool) -> tuple[Response, Response]:
        """Let both versions answer a prompt back to back; return the candidate's response first."""
        if first:
            ours = self.candidate.answer(cell, prompt, self.rounds)
            return ours, self.reference.answer(cell, prompt, self.rounds)
        theirs = self.reference.answer(cell, prompt, self.rounds)
        return self.candidate.answer(cell, prompt, self.rounds), theirs

    def _plan(self, prompts: int) -> Plan:
        """Return the plan for a number of prompts: how many pairs there will be at most.

        Raises:
            ValueError: There is no prompt left, or too few rounds for a look.
        """
        if not prompts:
            raise ValueError("no prompt takes a verify step: raise sampling.max_new_tokens")
        metrics = PER_CELL * len(self.candidate.records)
        settings = self.settings
        return plan_rounds(prompts, settings.max_rounds, metrics, settings.promise)

    def _keep(self, both: Both, prompts: Sequence[int]) -> None:
        """Add a round to both versions' records, and its log ratios to the timed metrics."""
        self.rounds += 1
        for version in (self.candidate, self.reference):
            version.end_round()
        names = [ours for ours, _ in self.arms]
        for (prompt, cell), (ours, theirs) in both.items():
            if prompt in prompts:
                for metric, pick in metrics_of(names[cell]).items():
                    ratio = math.log(pick(times(ours)) / pick(times(theirs)))
                    self.values.setdefault(metric, []).append(ratio)

    def _is_clear(self) -> bool:
        """Whether more pairs would change nothing: an exact finding fails, or the times decide."""
        assert self.plan is not None
        self._compare()
        self.findings = [f for a, b in self.arms for f in exact_findings(a, b, self.text)]
        if len(next(iter(self.values.values()))) >= self.plan.block:
            self.decision = decide(self.values, self.plan)
        decided = self.decision is not None and self.decision.verdict is not Verdict.GO_ON
        return decided or bool(self.differences) or any(f.fails for f in self.findings)


def metrics_of(cell: Arm) -> dict[str, Pick]:
    """Name the timed metrics of a cell, each with its pick of `Times`."""
    return {
        f"{cell.label}: {cell.verify_metric}": VERIFY,
        f"{cell.label}: ms_per_token": PER_TOKEN,
    }
