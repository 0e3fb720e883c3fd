"""A server that ends is reported with the first cause in its log, never with an echo of it."""

import tracemalloc

import pytest

from pipeline.engine.sglang.cause import first_cause
from tests.pipeline.engine.sglang.crash_logs import ECHO, LOGS, MEMORY, WARNED, parent, scheduler

ECHOES = ("died during initialization", "sigquit", "EOFError", "KeyboardInterrupt", "UserWarning")


def cause(path, content: bytes) -> str:
    path.write_bytes(content)
    return first_cause(path)


@pytest.mark.parametrize(("log", "wanted"), LOGS.values(), ids=LOGS)
def test_the_first_cause_is_found(tmp_path, log, wanted):
    found = cause(tmp_path / "server.log", log.encode())
    assert wanted in found
    assert "\n" not in found
    assert not [echo for echo in ECHOES if echo in found]


@pytest.mark.parametrize(("log", "wanted"), LOGS.values(), ids=LOGS)
def test_more_echoes_before_and_behind_change_nothing(tmp_path, log, wanted):
    if wanted == "it said nothing":
        return
    noisy = f"{WARNED}{log}{ECHO}{parent() if 'rank' not in wanted else ''}{ECHO}"
    assert wanted.partition("; its last")[0] in cause(tmp_path / "server.log", noisy.encode())


def test_bytes_that_are_no_text_are_read_over(tmp_path):
    content = b"\xff\xfe\x00 \xc3\x28\n" + scheduler(MEMORY).encode() + b"\x80\x81\n"
    assert cause(tmp_path / "server.log", content) == MEMORY


def test_a_long_cause_is_cut(tmp_path):
    found = cause(tmp_path / "x", scheduler(f"RuntimeError: shape {'1, ' * 90_000}").encode())
    assert found.startswith("RuntimeError: shape 1, 1")
    assert len(found) < 700


@pytest.mark.parametrize(
    ("line", "size"),
    [(b"x" * 99 + b"\n", 100e6), (b"y" * 5_000_000, 100e6), (b"0%|  | 0/8 [00:00<?]\r", 20e6)],
    ids=["lines", "one_line", "progress"],
)
def test_a_log_of_100_mb_is_read_in_bounded_memory(tmp_path, line, size):
    path = tmp_path / "server.log"
    with path.open("wb") as file:
        file.write(scheduler(MEMORY).encode())
        block = line * max(1, 2_000_000 // len(line))
        for _ in range(int(size) // len(block)):
            file.write(block)
        file.write(b"\n" + (ECHO + parent()).encode())
    assert path.stat().st_size > 0.99 * size
    tracemalloc.start(1)
    found = first_cause(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == MEMORY
    assert peak < 30e6
