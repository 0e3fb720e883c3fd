"""Measure candidate and baseline side by side, here and now, and judge what came of it.

A `Match` interleaves two loaded versions, prompt by prompt in an order that coins draw.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from pipeline.cell.response import Response
from pipeline.gate.arm import PER_TOKEN, VERIFY, Arm, Pick, summary, times, typical
from pipeline.gate.decision.promise import Plan, Power, candidate_first, plan_rounds, power_of
from pipeline.gate.decision.sequential import Decision, MetricVerdict, Verdict, decide
from pipeline.gate.exact import Finding, Text, exact_findings
from pipeline.gate.outcome import GateVerdict, Outcome, verdict_of
from pipeline.gate.settings import GateSettings
from pipeline.gate.validity import differences, notes
from pipeline.gate.versions.checkout import Tree, baseline_tree, cache_of, folder_tree, interpreter
from pipeline.gate.versions.version import Side, SideFailed, Version
from pipeline.machine.cache import cache_root
from pipeline.sweep.running_cell import Launcher

MODE = "side by side"
Say = Callable[[str], None]
Both = Mapping[tuple[int, int], tuple[Response, Response]]  # by prompt and cell; candidate's first
PER_CELL = 2  # timed metrics: the verify (or decode) step, and all of a token


def find_trees(settings: GateSettings) -> tuple[Tree, Tree]:
    """Return the candidate's version and the baseline's, before anything is started for them.

    Raises:
        ValueError: There is no such version, or git does not give it.
    """
    ours = folder_tree("candidate", settings.candidate)
    return ours, baseline_tree(settings.baseline, ours, cache_root())


def measure_side_by_side(
    settings: GateSettings,
    trees: tuple[Tree, Tree],
    launcher: Launcher,
    text: Text,
    folder: Path,
    say: Say,
) -> Outcome:
    """Measure candidate and baseline side by side; return the outcome.

    Args:
        settings: The gate's settings.
        trees: The candidate's version and the baseline's.
        launcher: Its time-outs are used; the two processes are this module's own.
        text: Gives a token's text by its id.
        folder: For the logs of the two processes.
        say: Takes lines of progress.

    Raises:
        ValueError: A version cannot be set up, or there are too few rounds or prompts.
    """
    begun = time.monotonic()
    (ours, theirs), cache = trees, cache_root()
    pythons = [interpreter(t.path, ours.path, cache, folder / "set_up.log") for t in (ours, theirs)]
    begun_work = time.monotonic()  # a version's environment is made once; the budget is for runs
    with ExitStack() as stack:

        def version(tree: Tree, python: str, name: str) -> Version:
            place = cache_of(tree.path, ours.path, cache)
            side = Side(tree, python, place, f"{folder.name}/{name}", folder / f"{name}.log")
            stack.callback(side.kill)
            return Version(side, launcher.start_timeout_s, launcher.repetition_timeout_s)

        match = Match(
            version(ours, pythons[0], "candidate"),
            version(theirs, pythons[1], "reference"),
            settings,
            text,
            say,
            begun_work,
        )
        try:
            match.run()
        except SideFailed as failure:  # a version that fails is a difference between the two
            match.differences = [*match.differences, f"a version cannot run this: {failure}"]
        return match_outcome(match, trees, time.monotonic() - begun)


def match_outcome(match: Match, trees: tuple[Tree, Tree], seconds: float) -> Outcome:
    """Judge a match.

    Args:
        match: A match that has ended.
        trees: The candidate's version and the baseline's.
        seconds: Wall time of the gate, for the advice.
    """
    arms = match.arms if match.rounds and not match.differences else []
    powers = _powers(match)
    return Outcome(
        verdict=_verdict(match),
        mode=MODE,
        candidate=str(trees[0]),
        reference=str(trees[1]),
        promise=match.settings.promise,
        differences=match.differences,
        findings=match.findings,
        timed=_timed(match, arms, powers),
        arms=arms,
        notes=notes(arms),
        advice=_advice(match, powers, seconds),
        figures=summary([a for a, _ in arms]),
        seconds=seconds,
        measured=_measured(match),
    )


def _verdict(match: Match) -> GateVerdict:
    """Return the verdict on a match; without enough pairs for a look, times are undecided."""
    times = match.decision.verdict if match.decision else Verdict.UNDECIDED
    return verdict_of(match.differences, match.findings, times)


def _powers(match: Match) -> dict[str, Power]:
    """Return the power of each metric that has pairs enough for a look."""
    if match.plan is None:
        return {}
    block = match.plan.block
    return {k: power_of(v, match.plan) for k, v in match.values.items() if len(v) >= block}


def _timed(
    match: Match, arms: Sequence[tuple[Arm, Arm]], powers: dict[str, Power]
) -> list[MetricVerdict]:
    """Return the verdict on each timed metric with its figures and its power.

    What would go on is undecided now: the match has ended.
    """
    if match.decision is None or not arms:
        return []
    verdicts = {verdict.name: verdict for verdict in match.decision.metrics}
    return [
        replace(
            verdicts[name],
            verdict=Verdict.UNDECIDED if _is_open(verdicts[name]) else verdicts[name].verdict,
            candidate=typical(ours, pick),
            reference=typical(theirs, pick),
            power=f"{powers[name].found:.0%}" if name in powers else "–",
        )
        for ours, theirs in arms
        for name, pick in metrics_of(ours).items()
    ]


def _is_open(metric: MetricVerdict) -> bool:
    """Whether a metric is neither slow nor ruled out to be."""
    return metric.verdict in (Verdict.GO_ON, Verdict.UNDECIDED)


def _advice(match: Match, powers: dict[str, Power], seconds: float) -> str:
    """Return the rounds that would decide, where nothing was decided; "" otherwise."""
    if _verdict(match) is not GateVerdict.UNDECIDED or match.plan is None:
        return ""
    metrics = match.decision.metrics if match.decision else ()
    still_open = [metric.name for metric in metrics if _is_open(metric)]
    needed = max((powers[name].pairs_needed for name in still_open), default=match.plan.block)
    if math.isinf(needed):
        return "no number of repetitions up to 3,000 pairs decides: this machine is too noisy now"
    pairs = len(next(iter(match.values.values())))
    prompts = pairs / match.rounds
    rounds = max(math.ceil(needed / prompts), match.rounds + 1)
    time_s = 1.2 * seconds * rounds / match.rounds
    return (
        f"undecided: repeat with gate.max_rounds={rounds} gate.max_seconds={time_s:.0f}"
        f" ({needed:.0f} pairs of each cell; this run had {pairs})"
    )


def _measured(match: Match) -> str:
    """Return how much was measured, in words."""
    pairs = match.decision.pairs if match.decision else 0
    at_most = match.plan.pairs if match.plan else 0
    return f"{match.rounds} rounds, {pairs} of at most {at_most} pairs of each cell looked at"


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
            self.candidate.begin_build(replace(self.settings, jobs=jobs).cell_jobs)
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
