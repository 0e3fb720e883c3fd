"""One sweep at a time."""

import threading

import pytest

from pipeline import lock
from pipeline.lock import machine_lock


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))


def test_a_second_sweep_is_refused_and_told_who_holds_the_machine():
    with (
        machine_lock("4 cells", "refuse", print),
        pytest.raises(ValueError, match=r"pid \d+, 4 cells\); wait for it"),
        machine_lock("other", "refuse", print),
    ):
        pass


def test_a_second_sweep_waits_until_the_first_is_done():
    said, order = [], []

    def wait():
        with machine_lock("second", "wait", said.append):
            order.append("second")

    with machine_lock("first", "refuse", print):
        second = threading.Thread(target=wait)
        second.start()
        while not said:
            second.join(0.01)
        order.append("first")
    second.join()
    assert order == ["first", "second"]
    assert "first" in said[0]


def test_the_machine_is_free_again_after_an_error():
    with pytest.raises(RuntimeError, match="broken"), machine_lock("one", "refuse", print):
        raise RuntimeError("broken")
    with machine_lock("two", "refuse", print):
        pass
