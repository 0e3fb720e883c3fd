"""How numbers, cells and tables are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pipeline.measure import Levers
from pipeline.measure.statistics import Interval
from pipeline.record.record import CellRecord

LONGEST = 28  # characters of a setting's value in a name
K = TypeVar("K")
V = TypeVar("V")


def number(value: float) -> str:
    """Write a figure with about three significant digits; a dash where there is none."""
    if math.isnan(value):
        return "–"
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f}".replace("-", "−")


def surplus(levers: Levers) -> float:
    """Return accept length less break-even as a reader takes them off each other: both rounded."""
    return round(levers.accept_length, 2) - round(levers.break_even, 2)


def with_interval(interval: Interval) -> str:
    """Write a figure and its 95 % interval; the interval is missing where none can be given."""
    if math.isnan(interval.low):
        return number(interval.value)
    return f"{number(interval.value)} ({number(interval.low)}–{number(interval.high)})"


def times(interval: Interval) -> str:
    """Write a speed-up and its interval: `1.62x (1.50–1.70)`."""
    value, _, rest = with_interval(interval).partition(" ")
    return f"{value}x {rest}".rstrip()


def percent(share: float) -> str:
    """Write a share as a percentage; a dash where there is none."""
    return "–" if math.isnan(share) else f"{100 * share:.0f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1) -> str:
    """Write a Markdown table; the first `text` columns are words, the others numbers."""
    rule = [":--"] * text + ["--:"] * (len(head) - text)
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |"
        for line in [head, rule, *rows]
    )


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group values by their key, in order: what is said of several cells is written once."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def sentence(text: str) -> str:
    """Begin with a capital, unless the first word is a name such as `eagle3_scratch`."""
    first = text.split(" ", 1)[0]
    return text if not first.isalpha() else f"{text[:1].upper()}{text[1:]}"


def code(text: str) -> str:
    """Fence text that is shown as it is."""
    return f"```\n{text}\n```"


def cell_names(records: Sequence[CellRecord]) -> dict[str, str]:
    """Return a name for each cell id: its label, and the settings that tell equal labels apart.

    Of a long value, as of a folder, the end is shown, unless two cells then had one name.
    """
    full, short = {}, {}
    for record in records:
        same = [r.params for r in records if r.label == record.label]
        apart = _differing(record.params, same)
        ends = {key: clipped(value, LONGEST, end=True) for key, value in apart.items()}
        full[record.cell_id] = record.label + _parenthesis(apart)
        short[record.cell_id] = record.label + _parenthesis(ends)
    all_short = list(short.values())
    return {k: name if all_short.count(name) == 1 else full[k] for k, name in short.items()}


def arm_names(records: Sequence[CellRecord]) -> dict[str, str]:
    """Return `cell_names` of one comparison without the accept length that its cells hold.

    All of them hold the same one, so the verdict says it once.
    """
    return cell_names([replace(record, label=bare_label(record)) for record in records])


def bare_label(record: CellRecord) -> str:
    """Return a cell's label without the accept length that it holds."""
    return record.label.removesuffix(f" (accept length held at {record.held_accept_length:g})")


def clipped(text: str, longest: int, end: bool = False) -> str:
    """Return a text of at most so many characters; of a longer one both ends, or the end only."""
    if len(text) <= longest:
        return text
    head = 0 if end else longest // 2
    return f"{text[:head]}…{text[head + 1 - longest :]}"


def comparison_names(groups: Sequence[Sequence[CellRecord]]) -> list[str]:
    """Return a name for each comparison: target, engine, workload, and what else tells it apart.

    Several requests in flight are named in any case: tok/s is then not what the machine gives.
    """
    firsts = [group[0].params for group in groups]
    fixed = ("target", "engine", "workload")
    names = []
    for first, *_ in groups:
        params = first.params
        notes = (k for k in params if k.endswith(".note"))  # they say what settings came to
        fixed_or_said = {*fixed, *notes}
        apart = _differing(
            {k: v for k, v in params.items() if k not in fixed_or_said and not _is_arm(k)}, firsts
        )
        if first.batch > 1:
            apart["parallelism.batch"] = str(first.batch)
        names.append(" · ".join(params.get(k, "?") for k in fixed) + _parenthesis(apart))
    return names


def _is_arm(key: str) -> bool:
    """Whether a setting varies inside a comparison."""
    return key.split(".")[0] in ("drafter", "verify")


def _differing(params: Mapping[str, str], among: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the settings whose value is not the same in all of `among`."""
    others = list(among)
    return {k: v for k, v in params.items() if any(other.get(k) != v for other in others)}


def _parenthesis(settings: Mapping[str, str]) -> str:
    """Write settings behind a name, by the last part of their dotted names."""
    text = ", ".join(f"{key.split('.')[-1]}={value}" for key, value in settings.items())
    return f" ({text})" if text else ""
