"""The gate over servers: what was served from a cache becomes no reference, and equals none."""

import shutil
import time

import pytest

from pipeline.gate.command import Measured
from pipeline.gate.outcome import GateVerdict
from pipeline.gate.reference import compare_recorded, dump, load, new_reference
from pipeline.gate.settings import read
from pipeline.gate.validity import refusals
from pipeline.record.sweep_folder import SweepFolder
from pipeline.sweep.build import PlannedCell
from pipeline.sweep.launch import run_sweep
from tests.pipeline.engine.sglang.prompts import PROMPTS
from tests.pipeline.inline import InlineLauncher, make_settings

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
MACHINE = {"fingerprint": "f", "cpu": "x", "cores": "32", "gpus": "8 of them"}


@pytest.fixture
def measured(tmp_path, monkeypatch, empty_store, cell, ngram_cell):
    """Measures plain decoding and n-gram on servers, one of which may have a fault."""

    def run(fault=""):
        monkeypatch.setenv("FAKE_FAULT", fault)
        runs = tmp_path / f"runs-{fault}"
        runs.mkdir()
        shutil.copy(empty_store, runs)
        planned = [PlannedCell(each, tuple(PROMPTS), "") for each in (cell, ngram_cell)]
        settings = make_settings(runs, InlineLauncher(num_gpus=1))
        run_sweep(planned, settings, time.perf_counter())
        folder = SweepFolder(next((runs / "sweeps").iterdir()))
        return Measured(tuple(folder.records()), folder.sweep_id)

    return run


def test_cache_hits_make_no_reference_and_are_not_comparable_with_one(measured):
    sound, cached = measured(), measured("caches")
    assert refusals(sound.arms, sound.records, True) == []
    lines = refusals(cached.arms, cached.records, True)
    assert any("prompt tokens from the server's cache" in line for line in lines)

    reference = load(dump(new_reference(sound.arms, MACHINE)), "a file")
    settings = read(["reference=x"])
    again = compare_recorded(sound.arms, [], reference, MACHINE, settings, str)
    assert (list(again.differences), list(again.findings)) == ([], [])
    hit = compare_recorded(cached.arms, [], reference, MACHINE, settings, str)
    assert hit.verdict is GateVerdict.NOT_COMPARABLE
    assert any("prompt tokens from the cache" in line for line in hit.differences)
