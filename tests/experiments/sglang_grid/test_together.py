"""A grid planned here, measured on another machine with all servers up at once, and logged here."""

import pickle
import shutil

import pytest

from experiments.sglang_grid import away, together
from pipeline.record.record import Status
from pipeline.record.sweep_folder import SweepFolder

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@pytest.fixture
def overrides(python, folder):
    return [
        f"target.source={folder}",
        f"engine.python={python}",
        "engine=sglang",
        "engine.attention=triton",
        "drafter=none,ngram",
        "workload.per_class=1",
        "workload.categories=[chat]",
        "sampling.max_new_tokens=32",
        "measurement.min_repetitions=1",
        "measurement.max_repetitions=1",
    ]


@pytest.fixture
def full_gpu(driver_says):
    """A driver's tool that tells of one GPU, all but full with the memory of other servers."""
    driver_says("printf '0, GPU-0, NVIDIA H200, 140000, 143771\\n'")


def test_servers_that_share_a_full_gpu_are_measured_in_turn_and_logged_in_another_folder(
    overrides, full_gpu, tmp_path, monkeypatch, empty_store
):
    monkeypatch.setenv("FAKE_FAULT", "")
    away.plan(tmp_path / "away", overrides)
    planned, _ = pickle.loads((tmp_path / "away" / "plan.pkl").read_bytes())
    assert [each.cell.drafter.name for each in planned] == ["none", "ngram"]

    together.main(tmp_path / "away" / "plan.pkl", tmp_path / "out")
    runs = tmp_path / "runs"
    runs.mkdir()
    shutil.copy(empty_store, runs)
    away.log(tmp_path / "out", runs)

    (sweep,) = (runs / "sweeps").iterdir()
    records = SweepFolder(sweep).records()
    assert [record.status for record in records] == [Status.OK, Status.OK]
    assert {record.settings["device"] for record in records} == {"1 x NVIDIA H200"}
    assert (sweep / "report.md").is_file()
