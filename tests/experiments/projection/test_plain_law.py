"""What plain decoding alone tells of a drafter on a benchmark."""

import pytest

from experiments.projection.plain_law import hold_out
from experiments.projection.specbundle import Cell

STEP_MS = {"3/1/4": 1.6, "5/1/6": 1.9, "5/4/8": 2.4}
REST_MS = {"chat": 0.1, "code": 0.0, "math": 0.05, "long": 1.3}  # prefill, a token's share of it
ACCEPT = {"chat": 1.7, "code": 2.9, "math": 2.6, "long": 1.9}


def published(plain_step_ms=1.0, benches=REST_MS):
    """Return cells of decode steps and a rest that plain decoding has too."""
    return [
        Cell(
            target="t",
            bench=bench,
            shape=shape,
            topk=shape[2],
            draft="d",
            base=1000 / (plain_step_ms + REST_MS[bench]),
            tok_s=1000 / (step / length + REST_MS[bench]),
            accept_length=length,
        )
        for bench in benches
        for i, (shape, step) in enumerate(STEP_MS.items())
        for length in [ACCEPT[bench] + 0.2 * i]
    ]


def test_a_benchmark_with_long_prompts_is_told_by_its_plain_decoding():
    cells = published()
    hidden = list(hold_out(cells, range(len(cells))))
    assert [h.place for h in hidden] == list(range(len(cells)))
    assert [h.estimate.value for h in hidden] == pytest.approx([1 / c.tok_s for c in cells])


def test_the_interval_is_as_wide_as_the_errors_on_the_other_benchmarks():
    cells = published()
    off = [c._replace(tok_s=1.1 * c.tok_s) if c.bench == "math" else c for c in cells]
    hidden = [h for h in hold_out(off, range(len(off))) if off[h.place].bench == "chat"]
    for h in hidden:
        assert h.estimate.low < 0.95 * h.estimate.value < 1.05 * h.estimate.value < h.estimate.high


@pytest.mark.parametrize("benches", [["chat"], ["chat", "code"], ["chat", "code", "math"]])
def test_too_few_other_benchmarks_tell_nothing(benches):
    cells = published(benches=benches)
    assert list(hold_out(cells, range(len(cells)))) == []
