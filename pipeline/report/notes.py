"""What each cell says of its own end, output, loops and noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pipeline.judge.comparison import Comparison
from pipeline.judge.lossless import Losslessness
from pipeline.measure.measurement import NOISY_SHARE
from pipeline.measure.wording import code, percent, table
from pipeline.record.record import CellRecord, Status

LOG_LINES = 12


def ends(records: Sequence[CellRecord], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the cells without a result by reason, and the end of the first one's log."""
    groups: dict[tuple[Status, str], list[CellRecord]] = {}
    for record in records:
        if record.status is not Status.OK:
            reason = record.reason or "no reason was recorded"
            groups.setdefault((record.status, reason), []).append(record)
    if not groups:
        return
    yield "## Cells without a result"
    yield "\n".join(
        f"- **{status.value}**: {', '.join(names[r.cell_id] for r in cells)}: {reason}"
        for (status, reason), cells in groups.items()
    )
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
