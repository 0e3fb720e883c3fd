"""What one verify step of a measured SGLang cell costs, by its clock and by its trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pipeline.measure.statistics import standard_error
from pipeline.record.record import CellRecord, Status
from pipeline.record.sweep_folder import SweepFolder
from verify.breakdown import Breakdown


class Cost(NamedTuple):
    """One cell's times in ms.

    Attributes:
        backend: The verify backend, and what is unlike its default.
        verify_ms: The target's forward, the host's part in it included.
        gpu_ms: Its kernels, all-reduces at their fastest; without these where a step is eager, for
            there even the fastest waits for a late rank.
        error_ms: Standard error of `verify_ms`, by its repetitions; NaN of a single one.
        sums: Which all-reduces ran, and how many kernels in all.
    """

    target: str
    drafter: str
    backend: str
    width: int
    verify_ms: float
    gpu_ms: float
    error_ms: float
    sums: str


def cost(record: CellRecord) -> Cost:
    """Return a measured cell's times."""
    turns = [[ms for answer in turn for ms in answer.verify_ms] for turn in record.repetitions]
    middle = median(ms for turn in turns for ms in turn)
    parts = Breakdown(**json.loads(record.settings["breakdown"]))
    eager = record.proof is not None and record.proof.capture == "none"
    return Cost(
        record.params["target"],
        record.params["drafter"],
        " ".join([record.params["verify"], *unusual(record.params)]),
        record.width,
        middle,
        parts.compute + (0.0 if eager else parts.wire),
        standard_error([median(turn) for turn in turns]),
        record.settings["trace"],
    )


def unusual(params: Mapping[str, str]) -> Iterator[str]:
    """Yield what a backend's settings say that is not their default."""
    for name, usual in (("verify.scope", "verify"), ("verify.allreduce", "auto")):
        if params.get(name, usual) != usual:
            yield params[name]


def costs(runs: Sequence[Path]) -> list[Cost]:
    """Return the times of every good cell; say which are not good.

    The host's part of a step is most of it here, so that two clocks may differ by that: such a cell
    is named, and kept.
    """
    found = []
    for folder in sorted(path for one in runs for path in one.glob("sweeps/*")):
        for record in SweepFolder(folder).records():
            if record.status is not Status.OK:
                print(f"{record.label} at width {record.width}: {record.status} {record.reason}")
            if record.status is Status.OK or "device timer" in record.reason:
                found.append(cost(record))
    return sorted(found, key=lambda cell: (cell.target, cell.backend, cell.width, cell.drafter))
