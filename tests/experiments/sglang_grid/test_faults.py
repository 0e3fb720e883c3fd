"""The script that breaks real servers, on servers that play SGLang."""

import json

import pytest

from experiments.sglang_grid.faults import main
from pipeline.record.record import Status
from pipeline.record.sweep_folder import SweepFolder


@pytest.fixture
def commit(tmp_path, monkeypatch, driver_says, python, folder):
    """Commits faults; returns how many left something wrong."""
    driver_says("printf '0, GPU-0, H200, 10, 143771\\n'")
    monkeypatch.setenv("FAKE_FAULT", "")

    def commit(*names: str) -> int:
        overrides = [
            f"target.source={folder}",
            f"engine.python={python}",
            "engine.attention=triton",
            "engine.hang_timeout_s=3",
            "engine.stop_timeout_s=2",
            "workload.per_class=1",
            "sampling.max_new_tokens=64",
            "measurement.min_repetitions=1",
            "measurement.max_repetitions=1",
        ]
        return main(tmp_path / "out", names, overrides)

    return commit


def test_each_fault_leaves_a_record_with_its_cause_and_the_next_server_is_measured(
    commit, tmp_path, capsys
):
    assert commit() == 0
    records = {
        path.name: record
        for path in sorted((tmp_path / "out").glob("*"))
        for sweep in path.glob("sweeps/*")
        for record in SweepFolder(sweep).records()
    }
    assert {name: record.status for name, record in records.items()} == {
        "killed": Status.FAILED,
        "hung": Status.FAILED,
        "memory": Status.FAILED,
        "port": Status.OK,
    }
    assert "sglang::scheduler_TP0" in records["killed"].reason
    assert "the server hangs: /health is silent" in records["hung"].reason
    assert "torch.OutOfMemoryError: CUDA out of memory" in records["memory"].reason
    said = capsys.readouterr().out
    assert "memory, before any launch: target: each of parallelism.tp=1 GPUs must hold" in said
    assert said.count("processes left: 0") == 4


def test_a_fault_alone_is_followed_by_a_cell_that_is_measured(commit, tmp_path, capsys):
    assert commit("memory") == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["after", "memory", "too_large"]
    assert not list((tmp_path / "out").rglob("*.safetensors")), "a huge file would be copied"
    assert json.loads((tmp_path / "out/too_large/config.json").read_text())["vocab_size"] == 128


def test_an_unknown_fault_is_refused_with_the_known_ones(commit):
    with pytest.raises(ValueError, match="fire: the faults are killed, hung, memory, port"):
        commit("fire")
