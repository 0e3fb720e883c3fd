"""Side by side: both versions run here, now, in turns; nothing of another day is trusted."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from pipeline.gate.environment import cache_of, interpreter
from pipeline.gate.exact import Text
from pipeline.gate.match import Match, Say
from pipeline.gate.match_outcome import match_outcome
from pipeline.gate.outcome import Outcome
from pipeline.gate.settings import GateSettings
from pipeline.gate.versions.checkout import Tree, baseline_tree, folder_tree
from pipeline.gate.versions.process import Side, SideFailed
from pipeline.gate.versions.version import Version
from pipeline.machine.cache import cache_root
from pipeline.sweep.settings import Launcher


def run_beside(
    settings: GateSettings, launcher: Launcher, text: Text, folder: Path, say: Say
) -> Outcome:
    """Measure the candidate beside the baseline and return what that came to.

    Args:
        settings: What the gate is told.
        launcher: Its time-outs are used; the two processes are this module's own.
        text: Gives a token's text by its id.
        folder: For the logs of the two processes.
        say: Takes lines on what goes on.

    Raises:
        ValueError: There is no such version.
    """
    begun = time.monotonic()
    cache = cache_root()
    ours = folder_tree("candidate", settings.candidate)
    theirs = baseline_tree(settings.baseline, ours, cache)
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
        return match_outcome(match, (ours, theirs), time.monotonic() - begun)


def _run(match: Match) -> None:
    """Run the match; that a version cannot is a difference between the two."""
    try:
        match.run()
    except SideFailed as failure:
        match.differences = [*match.differences, f"a version cannot run this: {failure}"]
