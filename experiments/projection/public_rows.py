"""Is a cell that was not run predicted well? On the public rows of SpecForge's SpecBundle.

    python -m experiments.projection.public_rows SPECBUNDLE.csv [ISSUE_ROWS.csv]

The first file has one row per published cell: target, bench, bs, steps, topk, ndt, draft, base
(tok/s without speculation), tok_s, AL. The second has cells that users published in issues:
source, target, hw, bs, config, base_tok_s, spec_tok_s, AL. The exit status is 1 if a target's
error, one cell or one benchmark hidden at a time, is above what `experiments/projection/README.md`
says.
"""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

from experiments.projection import plain_law
from experiments.projection.hold_out import hold_out
from experiments.projection.specbundle import Cell, pools, read
from experiments.projection.surface import Point
from pipeline.measure.wording import table
from pipeline.roi.projection.predict import Hidden, summarise

MEDIAN, P90 = 0.03, 0.12
PAIRS = ((0, 3), (0, 2), (1, 2))  # bench × tree or chain, bench × drafter, shape × drafter


def predict(pool: Sequence[Cell], group: Callable[[int, Cell], object]) -> list[Hidden]:
    """Hide groups of cells in turn; an error of the step ratio is that of the speed-up.

    The accept length of the hidden cell is known, as after an offline run of the drafter.
    """
    middle = fmean(math.log(c.accept_length) for c in pool)
    points = [
        Point((c.bench, c.shape, c.draft, c.topk), (math.log(c.accept_length) - middle,))
        for c in pool
    ]
    groups = [group(i, c) for i, c in enumerate(pool)]
    return list(hold_out(points, [c.step_ratio for c in pool], groups, PAIRS))


def naive(pool: Sequence[Cell]) -> Iterator[tuple[str, float]]:
    """Yield target and error when the other drafter's step ratio is taken as it is."""
    for one in pool:
        for other in pool:
            same = (one.target, one.bench, one.shape) == (other.target, other.bench, other.shape)
            if same and one.draft != other.draft:
                yield one.target, one.step_ratio / other.step_ratio - 1


CELL, BENCHMARK, DRAFTER = "one cell hidden", "a drafter on a benchmark hidden", "a drafter hidden"
SPLITS: dict[str, Callable[[int, Cell], object]] = {
    CELL: lambda i, c: i,
    BENCHMARK: lambda i, c: (c.target, c.draft, c.bench),
    DRAFTER: lambda i, c: (c.target, c.draft),
}


def by_law(pool: Sequence[Cell], alone: Callable[[Cell], object]) -> dict[int, Hidden]:
    """Return the predictions of cells on benchmarks where only plain decoding ran, by place.

    Args:
        pool: The cells that count.
        alone: What keeps cells apart that must not learn from each other.
    """
    found: dict[int, Hidden] = {}
    for name in dict.fromkeys(map(alone, pool)):
        own = [i for i, c in enumerate(pool) if alone(c) == name]
        found |= {h.place: h for h in plain_law.hold_out([pool[i] for i in own], own)}
    return found


def whole(cells: Sequence[Cell]) -> Iterator[tuple[str, ...]]:
    """Yield each target's errors when a benchmark is hidden for all its drafters, both ways."""
    for pool in pools(cells).values():
        surface = predict(pool, lambda i, c: (c.target, c.bench))
        law = by_law(pool, lambda c: (c.target, c.draft))
        for target in dict.fromkeys(c.target for c in pool):
            own = [h for h in surface if pool[h.place].target == target]
            told = [law[h.place] for h in own if h.place in law]
            yield target, _both(own), _both(told) if told else "–"


def _both(hidden: Sequence[Hidden]) -> str:
    """Write median and 90th percentile."""
    errors = summarise(hidden)
    return f"{100 * errors.median:.1f} / {100 * errors.p90:.1f}"


def rows(cells: Sequence[Cell]) -> Iterator[tuple[str, ...]]:
    """Yield one row per target and split."""
    for pool in pools(cells).values():
        targets = list(dict.fromkeys(c.target for c in pool))
        for split, group in SPLITS.items():
            if split == DRAFTER and len({c.draft for c in pool}) < 2:
                continue
            hidden = predict(pool, group)
            if split == BENCHMARK:
                law = by_law(pool, lambda c: c.target)
                hidden = [law.get(h.place, h) for h in hidden]
            for target in targets:
                own = [h for h in hidden if pool[h.place].target == target]
                errors = summarise(own)
                drafters = len({c.draft for c in pool})
                yield (
                    target,
                    split,
                    str(drafters),
                    str(errors.number),
                    f"{100 * errors.median:.1f}",
                    f"{100 * errors.p90:.1f}",
                    f"{100 * errors.worst:.1f}",
                    f"{100 * errors.covered:.0f}",
                )


def issue_rows(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield each thread's cells, one hidden at a time: break-even from the thread's other cells."""
    with path.open() as file:
        found = list(csv.DictReader(file))
    threads: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in found:
        threads[row["source"]].append(row)
    for source, own in threads.items():
        points = [Point((r["config"].split()[0], r["bs"]), (math.log(_width(r)),)) for r in own]
        ratios = [float(r["AL"]) * float(r["base_tok_s"]) / float(r["spec_tok_s"]) for r in own]
        errors = summarise(list(hold_out(points, ratios, range(len(own)))))
        yield (
            source,
            str(errors.number),
            f"{100 * errors.median:.1f}",
            f"{100 * errors.p90:.1f}",
            f"{100 * errors.covered:.0f}",
        )


def _width(row: dict[str, str]) -> int:
    """Return the rows of a verify step: `steps/topk/ndt`, or `K=n` draft tokens."""
    config = row["config"]
    return int(config.split("/")[2]) if "/" in config else int(config.split("=")[1]) + 1


def main() -> int:
    """Print the tables; 1 if a promise is broken."""
    if not 2 <= len(sys.argv) <= 3:
        print("usage: python -m experiments.projection.public_rows SPECBUNDLE.csv [ISSUE_ROWS.csv]")
        return 2
    cells = read(Path(sys.argv[1]))
    void = [c for c in cells if c.void]
    print(f"{len(cells)} cells, {len(void)} void (speed-up above accept length)")
    found = list(rows(cells))
    head = ("target", "hidden", "drafters", "cells", "median %", "p90 %", "worst %", "covered %")
    print(table(head, found, text=2))
    print("\na benchmark hidden for all drafters of a target, median / p90 %:")
    print(table(("target", "by the surface", "by plain decoding"), whole(cells)))
    errors: dict[str, list[float]] = defaultdict(list)
    for pool in pools(cells).values():
        for target, error in naive(pool):
            errors[target].append(abs(error))
    print("\nthe other drafter's step ratio taken as it is:")
    for target, sizes in errors.items():
        ordered = sorted(sizes)
        p90 = ordered[int(0.9 * len(ordered))]
        print(f"  {target}: median {100 * ordered[len(ordered) // 2]:.1f} %, p90 {100 * p90:.1f} %")
    if len(sys.argv) == 3:
        print()
        columns = ("thread", "cells", "median %", "p90 %", "covered %")
        print(table(columns, issue_rows(Path(sys.argv[2]))))
    hidden = [row for row in found if row[1] in (CELL, BENCHMARK)]
    bad = (r for r in hidden if float(r[4]) > 100 * MEDIAN or float(r[5]) > 100 * P90)
    broken = ", ".join(f"{r[0]} ({r[1]})" for r in bad)
    print(f"\nabove {100 * MEDIAN:.0f} % median or {100 * P90:.0f} % p90: {broken or 'none'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
