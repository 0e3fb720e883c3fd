"""Two engines on the same target, drafters and prompts: do counts and outputs agree?

    python -m experiments.engines_agree SWEEP_OF_TORCH SWEEP_OF_SGLANG

Accept lengths may differ by 3 % over the tokens that both engines wrote: after the first token
where two responses part they answer differently, and two texts accept differently. Greedy outputs
must be equal or part at a margin that rounding explains; both engines round, so that twice the
margin of one is allowed. Both sweeps must use one dtype.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.cell.response import Response, num_equal
from pipeline.judge.lossless import compare_outputs
from pipeline.measure import measure
from pipeline.record.record import CellRecord, Status, load_record

TOLERANCE = 0.03


def main(torch: Path, sglang: Path) -> int:
    """Print a line per drafter and return how many disagree."""
    oracle, tested = records(torch), records(sglang)
    faults = 0
    for key, record in tested.items():
        if key not in oracle:
            continue
        ours, theirs, tokens = over_shared_tokens(oracle[key], record)
        whole = [measure(r, None).overall.accept_length.value for r in (oracle[key], record)]
        outputs = compare_outputs(record, oracle["none", key[1]])
        apart = [d for d in outputs.faults if (d.margin or 0.0) >= 2 * outputs.tolerance]
        wrong = abs(theirs / ours - 1) > TOLERANCE or bool(apart)
        faults += wrong
        print(
            f"{record.label}: accept length {ours:.3f} torch, {theirs:.3f} sglang"
            f" ({theirs / ours - 1:+.1%}) over {tokens} shared tokens; {whole[0]:.3f},"
            f" {whole[1]:.3f} ({whole[1] / whole[0] - 1:+.1%}) over all; of"
            f" {outputs.num_compared} outputs {len(outputs.explained)} part where one engine's"
            f" rounding explains it, {len(outputs.faults) - len(apart)} where both explain it,"
            f" {len(apart)} elsewhere{' <--' if wrong else ''}"
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


def over_shared_tokens(one: CellRecord, other: CellRecord) -> tuple[float, float, int]:
    """Return both accept lengths over the tokens before responses part, and how many these are."""
    first = {response.prompt_id: response for response in one.repetitions[0]}
    counts, tokens = [[0, 0], [0, 0]], 0
    for response in other.repetitions[0]:
        twin = first[response.prompt_id]
        shared = num_equal(twin.tokens, response.tokens)
        tokens += shared
        for count, each in zip(counts, (twin, response), strict=True):
            steps, committed = within(each, shared)
            count[0] += steps
            count[1] += committed
    ours, theirs = (committed / steps for steps, committed in counts)
    return ours, theirs, tokens


def within(response: Response, num_tokens: int) -> tuple[int, int]:
    """Return the verify steps that end within so many tokens, and what they committed."""
    steps, end = 0, 1  # prefill sampled the first token
    for committed in response.committed:
        if end + committed > num_tokens:
            break
        end += committed
        steps += 1
    return steps, end - 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), Path(sys.argv[2])))
