import shutil

import pytest
import torch

from tests.verify.native.llama import random_packed
from verify.native import build
from verify.native.packed import Linear


@pytest.fixture(autouse=True)
def fresh_loads():
    build.load.cache_clear()
    yield
    build.load.cache_clear()


def script(folder, text):
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_no_compiler_gives_one_line_with_the_fix(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert build.find_compiler() is None
    with pytest.raises(ValueError, match=r"needs a C compiler .* or use verify=extend$"):
        build.load(tmp_path)


def test_a_failing_compile_shows_the_compilers_first_error(tmp_path, monkeypatch):
    compiler = script(
        tmp_path, "echo 'step.c:1: note' >&2; echo 'step.c:7: error: bad' >&2; exit 1"
    )
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(ValueError, match=r"could not compile .*\(step.c:7: error: bad\): set CC"):
        build.load(tmp_path)
    assert not list(tmp_path.glob("*.so"))


def test_a_cache_folder_that_is_a_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("CC", str(script(tmp_path, "exit 1")))
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cache folder .*file cannot be written"):
        build.load(tmp_path / "file")


def test_a_damaged_library_names_the_file_to_delete(tmp_path):
    build.library_path(tmp_path).write_bytes(b"not a program")
    with pytest.raises(ValueError, match=r"native_step-.*so cannot be loaded .*: delete it"):
        build.load(tmp_path)


def test_a_second_load_compiles_nothing(tmp_path, monkeypatch, library):
    # The library of the session's fixture, put where a load with this cache folder looks.
    source = library._name
    path = build.library_path(tmp_path)
    shutil.copy(source, path)
    monkeypatch.setenv("CC", str(script(tmp_path, "exit 1")))
    assert build.load(tmp_path)._name == str(path)


def test_the_librarys_name_depends_on_sources_flags_and_processor(tmp_path, monkeypatch):
    names = {build.library_path(tmp_path), build.library_path(tmp_path, ("-O0",))}
    monkeypatch.setattr(build, "cpu_model", lambda: "another processor")
    names.add(build.library_path(tmp_path))
    assert len(names) == 3


@pytest.mark.skipif(build.find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("flags", [("-O1",), ("-O1", "-mavx2", "-mfma", "-mf16c")])
def test_every_kind_of_processor_has_the_same_weights_and_rows_that_do_not_mix(
    tmp_path, monkeypatch, flags, library
):
    monkeypatch.setattr(build, "FLAGS", ("-std=gnu11", "-fPIC", "-shared", *flags))
    monkeypatch.setattr(build, "PORTABLE_FLAGS", ("-std=gnu11", "-fPIC", "-shared", "-O1"))
    other = build.load(tmp_path)
    x = torch.eye(64)
    for fmt in ("q4_1", "q8_0", "f16", "bf16"):
        packed = random_packed(fmt, 9, 64, torch.Generator().manual_seed(2))
        linear, rows = Linear(packed, 2, other), torch.randn(9, 64)
        assert torch.equal(linear(x), Linear(packed, 1, library)(x))
        alone = torch.cat([linear(row[None]) for row in rows])
        for count in range(1, 10):
            assert torch.equal(linear(rows[:count].contiguous()), alone[:count])
