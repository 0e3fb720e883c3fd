"""`python -m drafters.vocab audit A B` and `python -m drafters.vocab remap HEAD MAP OUT`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from drafters.eagle3.checkpoint import load_head, save_head
from drafters.eagle3.config import head_config
from drafters.eagle3.data.corpus import Corpus, answer_counts
from drafters.vocab.audit import Audit, MapFacts, accept_length_cap, audit
from drafters.vocab.load import FIXES, read_map, read_stored
from drafters.vocab.remap import remap
from pipeline.config.messages import folded, guarded

_CHAIN = 3  # draft tokens of the chain whose accept length the report caps


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit two draft vocabularies, or move a head to another one.

    Returns:
        1 where a file is refused or engines misread a map, else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m drafters.vocab", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    asked = actions.add_parser("audit", help="compare the maps of two heads")
    asked.add_argument("a", type=Path, help="head folder or map file: what the head learnt with")
    asked.add_argument("b", type=Path, help="head folder or map file: what it is read with")
    asked.add_argument("--data", type=Path, help="training data: weighs tokens by its answers")
    moved = actions.add_parser("remap", help="move a head's rows to the slots of another map")
    moved.add_argument("head", type=Path, help="head folder")
    moved.add_argument("map", type=Path, help="head folder or map file with the map to move to")
    moved.add_argument("out", type=Path, help="folder to write")
    given = parser.parse_args(arguments)
    try:
        lines, sound = _audit(given) if given.action == "audit" else (_remap(given), True)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {folded(error)}\n")
        return 1
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if sound else 1


def _audit(given: argparse.Namespace) -> tuple[list[str], bool]:
    """Return the report, and whether engines read both maps right."""
    a, b = read_stored(given.a), read_stored(given.b)
    counts = None
    if given.data:
        counts = answer_counts(Corpus.open(given.data).samples(), a.vocab_size)
    found = audit(a, b, counts)
    return list(report(found)), not (found.a.wrong or found.b.wrong)


def _remap(given: argparse.Namespace) -> list[str]:
    head, moved = remap(load_head(given.head), read_map(given.map))
    save_head(head, given.out)
    return [
        f"{given.out}: {moved.kept} rows kept, {moved.new} tokens new to the head,"
        f" {moved.dropped} dropped",
        *(f"{given.head}: {assumed}" for assumed in head_config(given.head).assumed),
    ]


def report(found: Audit) -> Iterator[str]:
    """Yield an audit's lines."""
    yield from _map_lines("A", found.a, _unit(found))
    yield from _map_lines("B", found.b, _unit(found))
    size = max(found.a.size, found.b.size)
    yield f"same token in the same slot: {found.same_slot} of {size}"
    yield f"tokens that both hold: {found.shared} of {size} ({found.shared / size:.1%})"
    for name, coverage in (
        ("a head of A read with map B", found.coverage_same_slot),
        ("a head of A moved to map B", found.coverage_shared),
    ):
        yield f"{name}: accept rate at most {coverage:.3f} ({_unit(found)}), {_cap(coverage)}"


def _map_lines(name: str, facts: MapFacts, unit: str) -> Iterator[str]:
    yield (
        f"{name}: {facts.size} slots, stored as {facts.encoding}, coverage {facts.coverage:.3f};"
        f" as engines read it {facts.outside} out of range, {facts.repeated} repeated"
    )
    if not facts.wrong:
        return
    if facts.right_slots is None:
        costs = "which tokens are meant nobody can tell"
    else:
        costs = (
            f"engines read {facts.right_slots} of {facts.size} slots"
            f" ({facts.right_slots / facts.size:.1%}) right, accept rate at most {facts.right:.3f}"
            f" ({unit}) where {facts.coverage:.3f} is meant, {_cap(facts.right)}"
        )
    yield f"{name} is wrong: d2t {FIXES[facts.encoding]}; {costs}"


def _unit(found: Audit) -> str:
    return "of the target's output" if found.weighted else "of the vocabulary, unweighted"


def _cap(coverage: float) -> str:
    longest = accept_length_cap(coverage, _CHAIN)
    return f"accept length at most {longest:.2f} with a chain of {_CHAIN}"


if __name__ == "__main__":
    sys.exit(guarded("python -m drafters.vocab", main))
