"""Known faults that a sweep's own figures show: each rule with its public source."""

from collections.abc import Iterator, Mapping

from pipeline.judge import Comparison
from pipeline.roi.advisor import draft_rules, setup_rules, verify_rules
from pipeline.roi.advisor.seen import Advice, Rule, Seen, seen

__all__ = ["RULES", "Advice", "Rule", "Seen", "advise", "advisor_section"]

RULES = (*verify_rules.RULES, *draft_rules.RULES, *setup_rules.RULES)


def advise(comparison: Comparison) -> list[Advice]:
    """Return every rule that applies to a cell, void ones included, in the order of the cells."""
    return [
        Advice(cell.record.cell_id, rule.name, text, rule.source)
        for cell in seen(comparison)
        for rule in RULES
        if (text := rule.finding(cell))
    ]


def advisor_section(comparison: Comparison, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the known faults as a section of the report."""
    found = advise(comparison)
    yield "## Known faults"
    if not found:
        yield f"None of the {len(RULES)} known faults shows in these figures."
        return
    yield "\n".join(
        f"- **{a.rule}** in {names[a.cell_id]}: {a.text}. ([seen before]({a.source}))"
        for a in found
    )
