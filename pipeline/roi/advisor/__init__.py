"""Known faults that a sweep's own figures show: each rule with its public source."""

from collections.abc import Iterator, Mapping

from pipeline.judge.comparison import Comparison
from pipeline.measure.wording import grouped
from pipeline.roi.advisor.cell_view import Advice, seen
from pipeline.roi.advisor.rules import RULES

__all__ = ["RULES", "advise", "advisor_details", "advisor_section"]


def advise(comparison: Comparison) -> list[Advice]:
    """Return every rule that applies to a cell, void ones included, in the order of the cells."""
    return [
        Advice(cell.record.cell_id, rule.name, text, rule.source)
        for cell in seen(comparison)
        for rule in RULES
        if (text := rule.finding(cell))
    ]


def advisor_section(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the known faults as a section of the report, each once, told of its first cell."""
    found = _by_rule(comparison)
    yield "## Known faults"
    if not found:
        yield f"None of the {len(RULES)} known faults shows in these figures."
        return
    yield "\n".join(_line(several, names) for several in found)


def advisor_details(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the known faults cell by cell, if one shows in several."""
    found = _by_rule(comparison)
    if all(len(several) == 1 for several in found):
        return
    yield "## Known faults, cell by cell"
    yield "\n".join(_line([each], names) for several in found for each in several)


def _by_rule(comparison: Comparison) -> list[list[Advice]]:
    """Return what applies, rule by rule."""
    return list(grouped((each.rule, each) for each in advise(comparison)).values())


def _line(several: list[Advice], names: Mapping[str, str]) -> str:
    """Tell one rule of the first of some cells, and name the others."""
    first, *others = several
    alike = f" The same in {', '.join(names[a.cell_id] for a in others)}." if others else ""
    return (
        f"- **{first.rule}** in {names[first.cell_id]}: {first.text}.{alike}"
        f" ([seen before]({first.source}))"
    )
