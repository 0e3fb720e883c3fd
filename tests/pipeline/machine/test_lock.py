"""One sweep at a time."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pipeline.machine.lock import lock_path, machine_lock

HOLDS = """
import sys
from pipeline.machine.lock import machine_lock
with machine_lock("a sweep of another shell", "refuse", print):
    print("held", flush=True)
    sys.stdin.read()
"""


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


def test_a_sweep_of_a_shell_with_another_folder_for_temporary_files_is_seen(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "elsewhere")}
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "held\n"
    with (
        pytest.raises(ValueError, match=rf"pid {other.pid}, a sweep of another shell"),
        machine_lock("ours", "refuse", print),
    ):
        pass
    other.communicate("")
    assert other.returncode == 0


def test_the_lock_is_one_file_of_the_machine_unless_the_environment_moves_it(monkeypatch):
    moved = lock_path()
    assert str(moved) == os.environ["SPECROI_LOCK"]
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    monkeypatch.delenv("SPECROI_LOCK")
    assert lock_path() == Path("/tmp/specroi.lock")


def test_others_may_lock_it_whatever_the_umask_of_the_first():
    before = os.umask(0o077)
    try:
        with machine_lock("one", "refuse", print):
            assert lock_path().stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


@pytest.mark.parametrize(("place", "why"), [("none/x", "No such file"), (".", "Is a directory")])
def test_a_lock_that_cannot_be_opened_is_refused_with_the_variable_that_moves_it(
    place, why, tmp_path, monkeypatch
):
    monkeypatch.setenv("SPECROI_LOCK", str(tmp_path / place))
    with (
        pytest.raises(ValueError, match=rf"^the lock of this machine, {tmp_path}.*{why}.*SPECROI"),
        machine_lock("one", "refuse", print),
    ):
        pass


def test_a_link_that_someone_put_in_the_locks_place_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    lock_path().symlink_to(precious)
    with (
        pytest.raises(ValueError, match="cannot be opened"),
        machine_lock("one", "refuse", print),
    ):
        pass
    assert precious.read_text() == "keep me"
