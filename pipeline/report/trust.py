"""In a few lines, whether the figures can be trusted: ends, outputs, loops and noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from pipeline.judge.comparison import Comparison
from pipeline.measure.wording import percent


def trust(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a section of one list for cells that were measured; `notes` has it cell by cell."""
    yield "## Can it be trusted?"
    lines = [_ends(comparison), *_outputs(comparison, names), _loops(comparison)]
    lines += _quiet(comparison, names)
    yield "\n".join(f"- {line}" for line in lines)


def _ends(comparison: Comparison) -> str:
    """Say how many cells gave a result."""
    count, done = len(comparison.records), len(comparison.measurements)
    return f"{done} of {count} cells gave a result."


def _outputs(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Say of how many cells the output is plain decoding's, and name those of which it is not."""
    found = {key: f for key, f in comparison.lossless.items() if f.num_compared}
    if not found:
        yield "Outputs were not compared: no greedy cell has another one beside it."
        return
    unlike = {key: f for key, f in found.items() if f.unproven or f.faults}
    parted = [key for key, f in found.items() if f.explained and key not in unlike]
    same = len(found) - len(unlike) - len(parted)
    whole = "All" if same == len(found) else f"{same} of"
    text = f"{whole} {len(found)} cells compared repeat plain decoding token by token"
    if parted:
        text += f"; {len(parted)} part from it at near ties only: {_named(parted, names)}"
    yield f"{text}."
    if unproven := [key for key, f in unlike.items() if not f.faults]:
        yield f"**Neither proven equal nor refuted:** {_named(unproven, names)}."
    if faults := [key for key, f in unlike.items() if f.faults]:
        yield f"**Another output than plain decoding's:** {_named(faults, names)}."


def _named(keys: list[str], names: Mapping[str, str]) -> str:
    """Name cells."""
    return ", ".join(names[key] for key in keys)


def _loops(comparison: Comparison) -> str:
    """Say which prompts were left out because an arm answered with a loop."""
    if not comparison.exclude:
        return "No response ends in a repetition loop; every prompt counts."
    return (
        "Left out of every cell alike, since a loop flatters any drafter:"
        f" {', '.join(sorted(comparison.exclude))}."
    )


def _quiet(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Say whether the machine was quiet, and what ended the repetitions."""
    noisy = [key for key, m in comparison.measurements.items() if m.noisy]
    medians = [m.others_cpu_median for m in comparison.measurements.values()]
    known = [share for share in medians if not math.isnan(share)]
    if known:
        used = f"others used at most {percent(max(known))} of the machine in a cell's median"
        yield f"Busy machine: {_named(noisy, names)}; {used}." if noisy else f"Quiet: {used}."
    else:
        yield "How busy the machine was is not known."
    measured = [r for r in comparison.records if r.cell_id in comparison.measurements]
    if once := sum(len(r.repetitions) == 1 for r in measured):
        yield f"**Measured only once:** {once} of the cells; how far they scatter is not known."
    rules = Counter(r.stop_rule.partition(":")[0] or "not said" for r in measured)
    ended = ", ".join(f"{rule} in {count}" for rule, count in rules.items())
    yield (
        f"What ended repeating: {ended}. Intervals are over prompts (bootstrap, 95 %); the best of"
        " several cells is chosen by these same figures, so a narrow win need not repeat."
    )
