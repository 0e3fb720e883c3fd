"""What a reader needs before trusting the figures: ends, outputs, loops and noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipeline.judge import Comparison
from pipeline.lossless import Losslessness
from pipeline.measure.measurement import NOISY_SHARE
from pipeline.record import CellRecord, Status
from pipeline.wording import code, percent, table

LOG_LINES = 12


def ends(records: Sequence[CellRecord], names: Mapping[str, str]) -> Iterator[str]:
    """Yield every cell without a result, with its reason and the end of a failed one's log."""
    without = [r for r in records if r.status is not Status.OK]
    yield "## Cells without a result"
    if not without:
        yield f"None: all {len(records)} cells gave one."
    for record in without:
        reason = record.reason or "no reason was recorded"
        yield f"- **{record.status.value}**: {names[record.cell_id]}: {reason}"
        if record.log_tail:
            yield code("\n".join(record.log_tail.splitlines()[-LOG_LINES:]))


def outputs(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield what the token-by-token comparison of greedy outputs found."""
    yield "## Is the output the target's own?"
    found = [(key, f) for key, f in comparison.lossless.items() if f.num_compared]
    if found:
        yield "\n".join(f"- {names[key]}: {describe(f)}" for key, f in found)
    else:
        yield "Not compared: no greedy cell has an output and another one to compare it with."


def describe(found: Losslessness) -> str:
    """Say how one cell's output compares."""
    same = found.num_compared - len(found.explained) - len(found.unproven) - len(found.faults)
    count = f"all {same}" if same == found.num_compared else f"{same} of {found.num_compared}"
    text = f"{count} responses are, token by token, those of {found.reference}"
    if found.explained:
        text += (
            f"; {len(found.explained)} part at a near tie (margin below {found.tolerance:g}),"
            f" first {found.explained[0]}"
        )
    if found.unproven:
        text += (
            f"; {len(found.unproven)} part and the engine records no margins, so **neither"
            f" proven equal nor refuted**, first {found.unproven[0]}"
        )
    if found.faults:
        text += f"; **{len(found.faults)} part without a near tie**, first {found.faults[0]}"
    return text + "."


def loops(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield which prompts were left out because an arm answered with a loop."""
    if not comparison.measurements and not comparison.exclude:
        return  # no response was looked at
    yield "## Looping responses"
    if not comparison.exclude:
        yield "No response ends in a repetition loop; every prompt counts."
        return
    shares = (
        f"{names[key]} {percent(m.looping_share)}" for key, m in comparison.measurements.items()
    )
    yield (
        "Left out of every cell alike, since a loop flatters any drafter:"
        f" {', '.join(sorted(comparison.exclude))}. Share of each cell's prompts whose own response"
        f" loops: {', '.join(shares)}."
    )


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
        " stop rule's ± is the noise of repeating the same prompts; the intervals above are over"
        " prompts (bootstrap, 95 %, classes kept in proportion) and are wider. The best of several"
        " cells is chosen by these same figures, so a narrow win need not repeat."
    )
