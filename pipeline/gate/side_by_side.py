"""Measure candidate and baseline side by side: here, now, interleaved; and judge the match."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pipeline.gate.arm import Arm
from pipeline.gate.comparable import notes
from pipeline.gate.decision.power import Power, power_of
from pipeline.gate.decision.sequential import MetricVerdict, Verdict
from pipeline.gate.exact import Text
from pipeline.gate.figures import summary, typical
from pipeline.gate.match import Match, Say, metrics_of
from pipeline.gate.outcome import GateVerdict, Outcome
from pipeline.gate.settings import GateSettings
from pipeline.gate.versions.checkout import Tree, baseline_tree, cache_of, folder_tree, interpreter
from pipeline.gate.versions.process import Side, SideFailed
from pipeline.gate.versions.version import Version
from pipeline.machine.cache import cache_root
from pipeline.sweep.workers import Launcher

MODE = "side by side"


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
        _run(match)
        return match_outcome(match, trees, time.monotonic() - begun)


def _run(match: Match) -> None:
    """Run the match; a version that fails is a difference between the two."""
    try:
        match.run()
    except SideFailed as failure:
        match.differences = [*match.differences, f"a version cannot run this: {failure}"]


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
        notes=notes([a for a, _ in arms], [b for _, b in arms]),
        advice=_advice(match, powers, seconds),
        figures=summary([a for a, _ in arms]),
        seconds=seconds,
        measured=_measured(match),
    )


def _verdict(match: Match) -> GateVerdict:
    """Return the verdict: differences come first, then findings, then times."""
    if match.differences:
        return GateVerdict.NOT_COMPARABLE
    if any(finding.fails for finding in match.findings):
        return GateVerdict.REGRESSION
    if match.decision is None:
        return GateVerdict.UNDECIDED
    decided = {Verdict.REGRESSION: GateVerdict.REGRESSION, Verdict.PASS: GateVerdict.PASS}
    return decided.get(match.decision.verdict, GateVerdict.UNDECIDED)


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
