"""Write whether the figures can be trusted: ends, outputs, loops, noise and what weakens a verdict.

`caveats` and `interleaving` say it in a line beside a verdict or a table, `trust` sums it up in a
short list; the other public functions list it cell by cell for the details.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from pipeline.judge.comparison import Comparison
from pipeline.judge.lossless import Losslessness
from pipeline.measure.figures import NOISY_SHARE
from pipeline.measure.statistics import noise, scatter
from pipeline.measure.wording import code, grouped, number, percent, table
from pipeline.record.record import CellRecord, Status

NAMED = 3  # cells without a result that are named in the first line
SCATTER = 0.1  # share of tok/s that repetitions leave unknown, from which on a reader must know
LOG_LINES = 12


def caveats(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say what a reader must know first: what is pretended, missing, noisy or unproven."""
    noisy = [names[key] for key, m in comparison.measurements.items() if m.noisy]
    unproven = [names[key] for key, f in comparison.lossless.items() if f.unproven or not f.proven]
    held = comparison.records[0].held_accept_length
    text = f" Accept length was held at {held:g}: times are real, texts and acceptance are not."
    text = text * bool(held) + _missing(comparison, names) + _scatter(comparison, names)
    if noisy:
        text += f" Measured on a busy machine, so measure again: {', '.join(noisy)}."
    if unproven:
        text += f" Output not proven to be the target's own: {', '.join(unproven)}."
    return text


def _missing(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say how many cells gave no result, for the best may be among them; few are named."""
    without = [r for r in comparison.records if r.cell_id not in comparison.measurements]
    if not without:
        return ""
    text = f" No result from {len(without)} of {len(comparison.records)} cells"
    if len(without) <= NAMED:
        text += f": {', '.join(f'{names[r.cell_id]} ({r.status.value})' for r in without)}"
    return f"{text}."


def _scatter(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Name the cell whose repetitions scatter most, if they do so much that a reader must know."""
    repeated = {
        r.cell_id: r.repetitions
        for r in comparison.records
        if r.cell_id in comparison.measurements and len(r.repetitions) > 1
    }
    most = max(repeated, key=lambda key: scatter(repeated[key]), default="")
    if not most or scatter(repeated[most]) < SCATTER:
        return ""
    return (
        f" Repetitions scatter, most those of {names[most]} ({noise(repeated[most])} in tok/s): do"
        " not trust smaller differences."
    )


def interleaving(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say which cells did not take turns with the best baseline as it was first measured, or ""."""
    return " ".join(filter(None, [_not_interleaved(comparison, names), _again(comparison, names)]))


def _not_interleaved(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Name the cells that are compared with a baseline of another time, or ""."""
    if not comparison.not_interleaved or comparison.best is None:
        return ""
    others = set(comparison.measurements) - {comparison.best.cell_id}
    named = ", ".join(names[key] for key in names if key in comparison.not_interleaved)
    which = (
        "No cell" if comparison.not_interleaved >= others else f"Not all cells ({named} did not)"
    )
    return (
        f"{which} took turns with the best baseline, {names[comparison.best.cell_id]}: had the"
        " machine changed in between, these speed-ups would be off by it."
    )


def _again(comparison: Comparison, names: Mapping[str, str]) -> str:
    """Say which cells are compared with the best baseline measured again, and how fast it was."""
    best = comparison.best
    if best is None or best.cell_id not in comparison.measurements:
        return ""
    rates = {
        names[r.cell_id]: m.overall.versus.baseline_tok_s
        for r in comparison.records
        if r.control_id == best.cell_id
        and (m := comparison.measurements.get(r.cell_id))
        and m.overall.versus
    }
    if not rates:
        return ""
    low, high = number(min(rates.values())), number(max(rates.values()))
    first = number(comparison.measurements[best.cell_id].overall.tok_s.value)
    return (
        f"{', '.join(rates)} came later and took turns with {names[best.cell_id]} measured again:"
        f" {low if low == high else f'{low}–{high}'} tok/s then, {first} at first. Their speed-ups"
        " are against it then, and their tok/s are of that time: compare cells by speed-up."
    )


def trust(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield a section of one list for cells that were measured; `notes` has it cell by cell."""
    yield "## Can it be trusted?"
    done = f"{len(comparison.measurements)} of {len(comparison.records)} cells gave a result."
    lines = [done, *_outputs(comparison, names), _loops(comparison), *_quiet(comparison, names)]
    yield "\n".join(f"- {line}" for line in lines)


def _outputs(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Say of how many cells the output is plain decoding's, and name those of which it is not."""
    yield from _not_proven(comparison, names)
    found = {key: f for key, f in comparison.lossless.items() if f.num_compared and f.proven}
    if not found:
        if all(f.proven for f in comparison.lossless.values()):
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


def _not_proven(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Name the cells that no plain decode of their verify backend stands beside."""
    lacking = {key: f for key, f in comparison.lossless.items() if not f.proven}
    if not lacking:
        return
    unlike = [key for key, f in lacking.items() if f.unproven]
    beside = (
        f"held against another cell, {_named(unlike, names)} part without an explanation"
        if unlike
        else "held against another cell, none parts without an explanation"
    )
    yield (
        f"**Not proven lossless:** {_named(list(lacking), names)}; no plain decode of their verify"
        f" backend gave a result ({beside}). Run drafter=none under the same backend."
    )


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
    missing = grouped(
        ((r.status.value, r.reason or "no reason was recorded"), names[r.cell_id])
        for r in records
        if r.status is not Status.OK
    )
    lines = [f"- **{end}**: {', '.join(cells)}: {why}" for (end, why), cells in missing.items()]
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
    compared = [(key, found) for key, found in comparison.lossless.items() if found.num_compared]
    if alike := grouped((describe(found), names[key]) for key, found in compared):
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
    return text + ("." if found.proven else "; this proves nothing, since that is another cell.")


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
