"""Two engines on the same target, drafters and prompts: do counts and outputs agree?

    python -m benchmarks.engines_agree SWEEP_OF_TORCH SWEEP_OF_SGLANG

Accept lengths may differ by 3 %; greedy outputs must be equal or part at a margin that rounding
explains. Both sweeps must use one dtype.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.lossless import compare_outputs
from pipeline.measure import measure
from pipeline.record import CellRecord, Status, load_record

TOLERANCE = 0.03


def main(torch: Path, sglang: Path) -> int:
    """Print a line per drafter and return how many disagree."""
    oracle, tested = records(torch), records(sglang)
    faults = 0
    for key, record in tested.items():
        if key not in oracle:
            continue
        ours, theirs = (measure(r, None).overall.accept_length.value for r in (oracle[key], record))
        outputs = compare_outputs(record, oracle["none", key[1]])
        wrong = abs(theirs / ours - 1) > TOLERANCE or bool(outputs.faults)
        faults += wrong
        print(
            f"{record.label}: accept length {ours:.3f} torch, {theirs:.3f} sglang"
            f" ({theirs / ours - 1:+.1%}); {outputs.num_compared} outputs,"
            f" {len(outputs.explained)} explained by margin, {len(outputs.faults)} not"
            f"{' <-- ' if wrong else ''}{outputs.reason}"
        )
    return faults


def records(sweep: Path) -> dict[tuple[str, str], CellRecord]:
    """Return a sweep's measured cells by drafter and verify backend."""
    found = (load_record(path.parent) for path in sorted(sweep.glob("**/record.json")))
    return {
        (record.params["drafter"], record.params["verify"]): record
        for record in found
        if record.status is Status.OK
    }


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), Path(sys.argv[2])))
