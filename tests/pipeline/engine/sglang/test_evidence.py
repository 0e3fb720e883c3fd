"""What a server's steps prove beyond its counts."""

from dataclasses import replace

import pytest

from pipeline.cell.cell import Parallelism
from pipeline.engine.sglang.arguments import server_arguments
from pipeline.engine.sglang.counts import Records, StepRecord
from pipeline.engine.sglang.evidence import Evidence
from pipeline.sweep.build import PlannedCell
from pipeline.track.metrics import own_metrics
from tests.pipeline.engine.sglang.prompts import PROMPTS


def shared(mode, *batches):
    """Return steps that so many requests shared."""
    steps = [
        StepRecord(mode, batch, True, 4.0, 1.0, float(at), {f"r{i}": 1 for i in range(batch)})
        for at, batch in enumerate(batches)
    ]
    return Records(1, 0, {}, tuple(steps))


def test_the_proof_says_how_many_requests_ran_on_average_and_forgets_warm_up(ngram_cell):
    cell = replace(ngram_cell, parallelism=Parallelism(batch=8))
    evidence = Evidence(cell, server_arguments(cell, cell.engine, None), {})
    evidence.add([], shared("target_verify", 1, 1))
    evidence.begin({})
    assert evidence.proof({}, "").running_requests == 0
    evidence.add([], shared("target_verify", 8, 8, 5))
    evidence.add([], shared("decode", 1, 1, 1))
    assert evidence.proof({}, "").running_requests == pytest.approx(7)


def test_the_mean_is_tracked_beside_the_figures(started, ngram_cell):
    session = started(ngram_cell)
    responses = tuple(session.generate(prompt, 0) for prompt in PROMPTS)
    record = PlannedCell(ngram_cell, tuple(PROMPTS), "").record
    done = replace(record, repetitions=(responses,), proof=session.proof())
    assert own_metrics(done)["running_requests"] == 1
