"""A server that breaks: the cell fails with the cause, and no process stays behind."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from pipeline.engine.sglang.client import ServerFault
from pipeline.engine.sglang.engine import SglangEngine
from pipeline.engine.sglang.log import ServerLog
from pipeline.sweep.running_cell import tail
from tests.pipeline.engine.sglang.conftest import PATIENCE_S
from tests.pipeline.engine.sglang.crash_logs import LOGS
from tests.pipeline.engine.sglang.prompts import PROMPTS


@pytest.mark.parametrize(
    ("fault", "settings", "message"),
    [
        ("dies_at_start", {}, "ended with status 1: ValueError: no kernel image is available"),
        ("runs_out_of_memory", {}, "status 247: torch.OutOfMemoryError: CUDA out of memory"),
        ("wrong_model", {}, r"serves \['someone-else'\], not specroi-"),
    ],
)
def test_a_server_that_does_not_come_up_says_why(cell, monkeypatch, fault, settings, message):
    monkeypatch.setenv("FAKE_FAULT", fault)
    with pytest.raises(ServerFault, match=message):
        replace(cell, engine=replace(cell.engine, **settings)).engine.start(cell)


def test_a_server_that_never_becomes_ready_says_how_far_it_came(cell, monkeypatch):
    """The time-out is over when the server has said that it loads, however long that takes."""
    seen, read = threading.Event(), ServerLog._read

    def note(log, line):
        read(log, line)
        if log.phase == "loading weights":
            seen.set()

    monkeypatch.setattr(ServerLog, "_read", note)
    now = lambda: time.monotonic() + PATIENCE_S * seen.is_set()  # noqa: E731
    clock = SimpleNamespace(monotonic=now, sleep=time.sleep)
    monkeypatch.setattr("pipeline.engine.sglang.server.time", clock)
    monkeypatch.setenv("FAKE_FAULT", "never_ready")
    with pytest.raises(
        ServerFault, match=r"not ready within engine\.start_timeout_s=600; it was loading weights"
    ):
        cell.engine.start(cell)


CRASHES = ("a module is missing, 0.5.17", "the GPU lacks a kernel", "C++ throws", "an assertion")


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_in_the_start_up_is_shown_by_its_cause_and_the_servers_own_lines(
    cell, tmp_path, crash
):
    text, cause = LOGS[crash]
    (tmp_path / "says").write_text(text)
    (tmp_path / "cell").write_bytes(pickle.dumps(cell))
    log = tmp_path / "worker.log"
    code = (
        "import contextlib, pickle; from pathlib import Path\n"
        "from pipeline.sweep.cell_process import CellProcess\n"
        "from pipeline.engine.sglang.client import ServerFault\n"
        "with contextlib.suppress(ServerFault):\n"
        f"    CellProcess({{}}, Path({str(log)!r})).start("
        f"Path({str(tmp_path / 'cell')!r}).read_bytes(), pickle.dumps(()))"
    )
    environment = os.environ | {"FAKE_LOG": str(tmp_path / "says")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    raised = next(x for x in reversed(log.read_text().splitlines()) if "ServerFault: " in x)
    assert f"the server ended with status 1: {cause}" in raised
    shown = tail(log, raised.partition("ServerFault: ")[2]).splitlines()
    assert cause in shown[-1]
    assert set(shown) <= {line.rstrip() for line in text.splitlines()} | {
        "Load weight begin. avail mem=100 GB"
    }


def test_a_port_that_another_took_is_left_to_it(cell, started, tmp_path):
    session = started(cell, "port_taken")
    assert (tmp_path / "count").read_text() == "xxx"
    assert session.generate(PROMPTS[0], 0).finish == "length"


def test_a_foreign_server_at_our_port_is_not_measured(cell, started, monkeypatch):
    from pipeline.engine.sglang import server as module

    foreign = socket.create_server(("127.0.0.1", 0))
    ports = iter([foreign.getsockname()[1]])
    free = module._free_port
    monkeypatch.setattr(module, "_free_port", lambda: next(ports, None) or free())
    session = started(cell)
    foreign.close()
    assert session.generate(PROMPTS[0], 0).num_prompt_tokens == 6


@pytest.mark.parametrize(
    ("fault", "settings", "message"),
    [
        ("crashes_in_a_request", {}, "ended with status 3: torch.OutOfMemoryError: CUDA out of"),
        ("hangs", {"hang_timeout_s": 1}, "the server hangs: /health is silent"),
        ("never_answers", {"request_timeout_s": 1}, r"more than engine\.request_timeout_s=1"),
    ],
)
def test_a_server_that_breaks_in_a_request_ends_the_cell(cell, started, fault, settings, message):
    patient = {"stop_timeout_s": PATIENCE_S} | settings
    broken = replace(cell, engine=replace(cell.engine, **patient))
    began = time.monotonic()
    with pytest.raises(ServerFault, match=message):
        started(broken, fault)
    assert time.monotonic() - began < PATIENCE_S, "no other time-out is waited for"


def test_a_server_that_ignores_sigterm_is_killed_with_its_group(cell, started):
    short = replace(cell, engine=replace(cell.engine, stop_timeout_s=0.3))
    session = started(short, "ignores_sigterm")
    family = psutil.Process(session.server.family._head.pid).children(recursive=True)
    assert family, "a scheduler runs beside it"
    session.close()
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family)


def test_an_idle_server_is_not_waited_for(cell, started):
    usual = replace(cell.engine, stop_timeout_s=SglangEngine.stop_timeout_s)
    session = started(replace(cell, engine=usual), "ignores_sigterm")
    began = time.monotonic()
    session.close()
    assert SglangEngine.stop_timeout_s < 4
    assert time.monotonic() - began < PATIENCE_S, "it would never end by itself"


def test_a_server_that_dies_between_requests_says_why_at_the_next_flush(cell, started):
    session = started(cell)
    os.kill(session.server.family._head.pid, signal.SIGKILL)
    with pytest.raises(ServerFault, match="the server ended with status -9"):
        session.server.client.flush()


def test_a_scheduler_is_gone_even_if_its_server_was_killed_first(cell, started):
    session = started(cell)
    os.kill(session.server.family._head.pid, signal.SIGKILL)
    with pytest.raises(ServerFault, match="the server ended with status -9"):
        session.generate(PROMPTS[0], 0)


def test_a_scheduler_that_is_killed_ends_the_request_at_once_with_its_name(cell, started):
    patient = replace(cell, engine=replace(cell.engine, stop_timeout_s=PATIENCE_S))
    session = started(patient)
    head = psutil.Process(session.server.family._head.pid)
    (scheduler,) = head.children(recursive=True)
    scheduler.kill()
    began = time.monotonic()
    with pytest.raises(ServerFault, match=r"process sglang::scheduler_TP0 \(pid \d+\) is gone"):
        session.generate(PROMPTS[0], 0)
    session.close()
    assert time.monotonic() - began < PATIENCE_S, "neither the silence nor the end is waited for"


@pytest.mark.parametrize("fault", ["", "ignores_sigterm"])
def test_a_server_that_hangs_is_killed_without_waiting_for_its_end(cell, started, fault):
    patient = replace(cell, engine=replace(cell.engine, stop_timeout_s=PATIENCE_S))
    session = started(patient, fault)
    os.killpg(session.server.family._head.pid, signal.SIGSTOP)
    began = time.monotonic()
    session.close()
    assert time.monotonic() - began < PATIENCE_S


def test_shared_memory_of_a_server_that_is_killed_is_freed(cell, started):
    session = started(cell, "shares_memory")
    shared = Path("/dev/shm") / (session._folder / "shared").read_text()
    assert shared.exists()
    os.killpg(session.server.family._head.pid, signal.SIGSTOP)
    session.close()
    assert not shared.exists()


def test_closing_twice_does_no_harm(cell, started):
    session = started(cell)
    session.close()
    session.close()


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        ("Failed to initialize FlashInfer workspace (backend=trtllm): no peer access.", True),
        ("FlashInfer workspace preflight probe failed (x). Skipping allreduce fusion.", True),
        ("FlashInfer AllReduce Fusion enabled and workspace initialized: backend=trtllm", False),
    ],
)
def test_a_server_that_gives_up_fusing_says_so(tmp_path, line, failed):
    (tmp_path / "server.log").write_text(f"Load weight begin\n[TP0] {line}\n")
    log = ServerLog(tmp_path / "server.log")
    assert log.fusion_failure == (f"[TP0] {line}" if failed else "")
    log.close()


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (
            "ValueError: of a kernel that is not needed\n"
            "[10:00:00] Subprocess scheduler_0 (pid=7) crashed with exit code -9. Cleaning up\n"
            "[10:00:00] kill_process_tree called: parent_pid=5\n",
            "Subprocess scheduler_0 (pid=7) crashed with exit code -9",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.00 GiB.\n"
            "[10:00:00] Received sigquit from a child process.\n",
            "Tried to allocate 6.00 GiB",
        ),
        ("Load weight begin\nRuntimeError: no weights\nKilled\n", "RuntimeError: no weights"),
        ("Load weight begin\nKilled\n", "Killed"),
    ],
    ids=["death", "memory", "error", "last_line"],
)
def test_the_cause_of_an_end_is_the_line_that_says_most(tmp_path, lines, cause):
    log = ServerLog(tmp_path / "server.log")
    (tmp_path / "server.log").write_text(lines)
    assert cause in log.cause
    log.close()
