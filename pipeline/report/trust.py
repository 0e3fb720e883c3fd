"""Write whether the figures can be trusted: ends, outputs, loops and noise.

`trust` sums them up in a short list; the other public functions list them cell by cell for the
details.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pipeline.judge.comparison import Comparison
from pipeline.judge.lossless import Losslessness
from pipeline.measure.measurement import NOISY_SHARE
from pipeline.measure.wording import code, percent, table
from pipeline.record.record import CellRecord, Status

LOG_LINES = 12


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


def ends(
    records: Sequence[CellRecord], names: Mapping[str, str], damaged: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the cells without a result by reason, and the end of the first one's log.

    Args:
        records: All cells that could be read.
        names: Of cells, for people.
        damaged: A line for each cell that could not.
    """
    groups: dict[tuple[Status, str], list[CellRecord]] = {}
    for record in records:
        if record.status is not Status.OK:
            reason = record.reason or "no reason was recorded"
            groups.setdefault((record.status, reason), []).append(record)
    lines = [
        f"- **{status.value}**: {', '.join(names[r.cell_id] for r in cells)}: {reason}"
        for (status, reason), cells in groups.items()
    ]
    lines += [f"- **damaged**: {line}" for line in damaged]
    if not lines:
        return
    yield "## Cells without a result"
    yield "\n".join(lines)
    yield from islice(_log_ends(records, names), 2)


def logs(records: Sequence[CellRecord], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the end of each log that a failed cell left, if several did."""
    found = list(_log_ends(records, names))
    if len(found) > 2:
        yield "## Ends of logs"
        yield from found


def _log_ends(records: Sequence[CellRecord], names: Mapping[str, str]) -> Iterator[str]:
    """Yield, cell by cell, a line and the end of its log."""
    for record in records:
        if record.status is not Status.OK and record.log_tail:
            yield f"The end of the log of {names[record.cell_id]}:"
            yield code("\n".join(record.log_tail.splitlines()[-LOG_LINES:]))


def outputs(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield what the token-by-token comparison of greedy outputs found."""
    alike: dict[str, list[str]] = {}
    for key, found in comparison.lossless.items():
        if found.num_compared:
            alike.setdefault(describe(found), []).append(names[key])
    if alike:
        yield "## Is the output the target's own?"
        yield "\n".join(f"- {', '.join(cells)}: {said}" for said, cells in alike.items())


def describe(found: Losslessness) -> str:
    """Say how one cell's output compares."""
    same = found.num_compared - len(found.explained) - len(found.unproven) - len(found.faults)
    count = f"all {same}" if same == found.num_compared else f"{same} of {found.num_compared}"
    text = f"{count} responses are, token by token, those of {found.reference}"
    if found.explained:
        text += (
            f"; {len(found.explained)} part at a near tie (margin at most {found.tolerance:g}),"
            f" first {found.explained[0]}"
        )
    if found.unproven:
        text += (
            f"; {len(found.unproven)} part where no margin is known, so **neither proven"
            f" equal nor refuted**, first {found.unproven[0]}"
        )
    if found.faults:
        text += f"; **{len(found.faults)} part without a near tie**, first {found.faults[0]}"
    return text + "."


def loops(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield how many prompts each cell itself answered with a loop, if any did."""
    found = [(names[k], m.looping_share) for k, m in comparison.measurements.items()]
    if any(share for _, share in found):
        yield "## Looping responses"
        yield "Share of each cell's prompts whose own response ends in a repetition loop."
        yield table(("cell", "share"), [(name, percent(share)) for name, share in found])


def quiet(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield how much of the machine others used, and which rule ended the repetitions."""
    yield "## How quiet the machine was, and when repeating ended"
    yield table(
        ("cell", "stop rule", "noisy", "repetitions", "others' CPU, median", "largest"),
        [
            (
                names[record.cell_id],
                record.stop_rule or "–",
                "**yes**" if m.noisy else "no",
                str(len(record.repetitions)),
                percent(m.others_cpu_median),
                percent(m.others_cpu_max),
            )
            for record in comparison.records
            if (m := comparison.measurements.get(record.cell_id))
        ],
        text=3,
    )
    yield (
        f"Noisy: others used more than {percent(NOISY_SHARE)} of the machine in the median. The"
        " stop rule's ± is the noise of repeating the same prompts; the intervals of the tables are"
        " over prompts (bootstrap, 95 %, classes kept in proportion) and are wider."
    )
