"""`python -m drafters.vocab audit A B` and `python -m drafters.vocab remap HEAD MAP OUT`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from drafters.eagle3.checkpoint import load_head, save_head
from drafters.eagle3.data.corpus import Corpus, answer_counts
from drafters.vocab.audit import Audit, MapFacts, accept_length_cap, audit
from drafters.vocab.load import read_map, read_stored
from drafters.vocab.remap import remap
from pipeline.config.messages import guarded

_CHAIN = 3  # draft tokens of the chain whose accept length the report caps


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit two draft vocabularies, or move a head to another one."""
    parser = argparse.ArgumentParser(prog="python -m drafters.vocab", description=main.__doc__)
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
        lines = _audit(given) if given.action == "audit" else _remap(given)
        sys.stdout.write("\n".join(lines) + "\n")
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _audit(given: argparse.Namespace) -> list[str]:
    a, b = read_stored(given.a), read_stored(given.b)
    counts = None
    if given.data:
        counts = answer_counts(Corpus.open(given.data).samples(), a.vocab_size)
    return list(report(audit(a, b, counts)))


def _remap(given: argparse.Namespace) -> list[str]:
    head, moved = remap(load_head(given.head), read_map(given.map))
    save_head(head, given.out)
    return [
        f"{given.out}: {moved.kept} rows kept, {moved.new} tokens new to the head,"
        f" {moved.dropped} dropped"
    ]


def report(found: Audit) -> Iterator[str]:
    """Yield an audit's lines."""
    yield from _map_lines("A", found.a)
    yield from _map_lines("B", found.b)
    size = max(found.a.size, found.b.size)
    yield f"same token in the same slot: {found.same_slot} of {size}"
    yield f"tokens that both hold: {found.shared} of {size} ({found.shared / size:.1%})"
    unit = "of the target's output" if found.weighted else "of the vocabulary, unweighted"
    for name, coverage in (
        ("a head of A read with map B", found.coverage_same_slot),
        ("a head of A moved to map B", found.coverage_shared),
    ):
        yield (
            f"{name}: accept rate at most {coverage:.3f} ({unit}), accept length at most"
            f" {accept_length_cap(coverage, _CHAIN):.2f} with a chain of {_CHAIN}"
        )


def _map_lines(name: str, facts: MapFacts) -> Iterator[str]:
    yield (
        f"{name}: {facts.size} slots, stored as {facts.encoding}, coverage {facts.coverage:.3f};"
        f" as engines read it {facts.outside} out of range, {facts.repeated} repeated"
    )


if __name__ == "__main__":
    sys.exit(guarded("python -m drafters.vocab", main))
