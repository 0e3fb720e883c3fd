"""The number of threads is the fastest one's, whatever disturbed the measurement."""

import json

from pipeline.engine.torch.threads import calibrated_threads, fastest_threads


def step_ms(threads: int) -> float:
    return {1: 9.0, 2: 5.0, 4: 4.9, 6: 7.0}[threads]


def test_the_fastest_number_wins_and_fewer_threads_win_a_near_tie():
    assert fastest_threads(step_ms, cores=6, pause_s=0) == 2
    assert fastest_threads(step_ms, cores=1, pause_s=0) == 1


def test_a_disturbance_of_some_rounds_decides_nothing():
    calls = []

    def disturbed(threads: int) -> float:
        calls.append(threads)
        return step_ms(threads) * (10 if threads == 2 and calls.count(2) < 5 else 1)

    assert fastest_threads(disturbed, cores=2, pause_s=0) == 2


def test_cells_of_a_sweep_agree_and_the_next_sweep_measures_again(tmp_path, monkeypatch):
    asked = []

    def measure(threads: int) -> float:
        asked.append(threads)
        return 1.0 / threads

    monkeypatch.setattr("pipeline.engine.torch.threads.PAUSE_S", 0)
    monkeypatch.setattr("pipeline.engine.torch.threads.available_cores", lambda: 2)
    monkeypatch.setenv("SPECROI_SWEEP", "first")
    first = [calibrated_threads(measure, "digest", tmp_path) for _ in range(3)]
    count = len(asked)
    monkeypatch.setenv("SPECROI_SWEEP", "second")
    assert [*first, calibrated_threads(measure, "digest", tmp_path)] == [2] * 4
    assert len(asked) == 2 * count
    assert len(json.loads((tmp_path / "threads.json").read_text())) == 1
