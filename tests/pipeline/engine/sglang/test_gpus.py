"""The fence after a server: memory must be back, else its holder is named."""

import threading

import pytest

from pipeline.engine.sglang.gpus import MemoryNotBack, fence, gpus, wait_for_room


@pytest.fixture
def driver(tmp_path, driver_says):
    """A driver's tool whose answers are files."""
    driver_says(f'case "$1" in --query-gpu*) cat {tmp_path}/gpus;; *) cat {tmp_path}/apps;; esac')
    (tmp_path / "apps").write_text("GPU-b, 4242, sglang::scheduler, 70000\n")

    def holds(*used: int) -> None:
        rows = [f"{i}, GPU-{'abcdef'[i]}, H200, {mib}, 143771" for i, mib in enumerate(used)]
        (tmp_path / "gpus").write_text("\n".join(rows) + "\n")

    return holds


def test_the_first_gpus_are_those_that_cuda_counts_first(driver, monkeypatch):
    driver(5, 130000, 130000)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert [gpu.index for gpu in gpus()] == [2, 0]
    with pytest.raises(MemoryNotBack, match="GPU 2 lacks"):
        wait_for_room(1, 0.85, 0.1)


def test_the_fence_waits_until_the_memory_is_back(driver):
    driver(5, 5)
    before = gpus()
    driver(5, 70000)
    timer = threading.Timer(0.3, driver, [5, 6])
    timer.start()
    fence(before, 10)
    timer.join()


def test_memory_that_does_not_come_back_names_its_holder(driver):
    driver(5, 5)
    before = gpus()
    driver(5, 70005)
    with pytest.raises(
        MemoryNotBack, match=r"GPU 1 still holds 70000 MiB .* held by pid 4242 sglang::scheduler"
    ):
        fence(before, 0.1)


def test_a_server_waits_for_the_memory_of_the_one_before(driver):
    driver(130000, 130000)
    timer = threading.Timer(0.3, driver, [9, 130000])
    timer.start()
    wait_for_room(1, 0.85, 10)
    timer.join()
    with pytest.raises(
        MemoryNotBack,
        match=r"GPU 1 lacks 108434 MiB for engine\.mem_fraction=0\.85; held by pid 4242",
    ):
        wait_for_room(2, 0.85, 0.1)


def test_a_holder_that_the_driver_hides_is_said_so(driver):
    driver(5)
    before = gpus()
    driver(9000)
    with pytest.raises(MemoryNotBack, match="the driver names no process"):
        fence(before, 0.1)


@pytest.mark.parametrize(
    ("visible", "found"), [("1", [1]), ("GPU-a", [0]), ("", []), ("0,1", [0, 1])]
)
def test_only_visible_gpus_count(driver, monkeypatch, visible, found):
    driver(5, 5)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [gpu.index for gpu in gpus()] == found


def test_a_servers_end_waits_for_its_memory_and_names_who_keeps_it(driver, cell, started):
    driver(5, 5)
    session = started(cell)
    driver(5, 70005)
    with pytest.raises(
        MemoryNotBack, match=r"GPU 1 still holds 70000 MiB .* held by pid 4242 sglang::scheduler"
    ):
        session.close()
    assert not any(process.is_running() for process in session.server.family.members)
    timer = threading.Timer(0.3, driver, [5, 6])
    timer.start()
    session.close()
    timer.join()


def test_without_a_driver_there_is_no_gpu_and_no_fence(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus() == []
    fence([], 0.1)
