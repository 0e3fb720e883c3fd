import multiprocessing
import os
import shutil
from pathlib import Path

import pytest

from pipeline.machine.cache import built_once, cache_root


def write_slowly(folder: Path) -> None:
    (folder / "builder").write_text(str(os.getpid()))


def build_and_report(root: Path, results: "multiprocessing.Queue[str]") -> None:
    results.put((built_once(root / "thing", 0, write_slowly) / "builder").read_text())


def test_the_setting_wins_over_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECROI_CACHE", str(tmp_path / "environment"))
    assert cache_root() == tmp_path / "environment"
    assert cache_root(tmp_path / "setting") == tmp_path / "setting"


def test_a_cache_below_a_file_is_refused_with_the_setting_to_change(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^cache: cannot write .*file/cache .*set cache=FOLDER"):
        cache_root(tmp_path / "file" / "cache")


def test_a_read_only_cache_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ValueError, match="no write permission"):
        cache_root(tmp_path)


def test_a_build_that_fails_leaves_nothing_and_the_next_one_works(tmp_path):
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyError("a crash in the middle")

    with pytest.raises(KeyError, match="a crash in the middle"):
        built_once(tmp_path / "thing", 0, fail)
    assert not (tmp_path / "thing").exists()
    folder = built_once(tmp_path / "thing", 0, write_slowly)
    assert [path.name for path in folder.iterdir()] == ["builder"]


def test_a_finished_folder_is_not_built_again(tmp_path):
    def fail(_: Path) -> None:
        raise AssertionError("built twice")

    built_once(tmp_path / "thing", 0, write_slowly)
    built_once(tmp_path / "thing", 0, fail)


def test_processes_that_want_the_same_folder_get_one_build(tmp_path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [context.Process(target=build_and_report, args=(tmp_path, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    builders = {results.get(timeout=600) for _ in workers}
    for worker in workers:
        worker.join()
    assert len(builders) == 1


def test_a_full_disk_says_how_much_is_needed_and_free_before_anything_is_written(tmp_path):
    need = shutil.disk_usage(tmp_path).free + 10**9
    with pytest.raises(
        ValueError, match=r"^cache: thing needs [\d,]+ MB and .* has [\d,]+ MB free"
    ):
        built_once(tmp_path / "thing", need, write_slowly)
    assert not (tmp_path / "thing").exists()


def test_a_disk_that_fills_up_while_building_gives_the_same_line(tmp_path):
    def fill(folder: Path) -> None:
        with Path("/dev/full").open("w") as file:  # every write to it fails with ENOSPC
            file.write("x")

    with pytest.raises(ValueError, match=r"^cache: thing needs .* MB free"):
        built_once(tmp_path / "thing", 0, fill)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
