"""Compile the C sources once per machine and load them."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

# No -ffast-math: it may reorder sums by tile shape and assumes that NaN never occurs.
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-march=native")
PORTABLE_FLAGS = FLAGS[:-1]
THREADS_FLAG = "-fopenmp"
COMPILERS = ("cc", "gcc", "clang")
HERE = Path(__file__).parent
STEP = HERE / "step.c"


def find_compiler() -> str | None:
    """Path of the C compiler: `$CC` if set, else the first of cc, gcc and clang; None if none."""
    wanted = os.environ.get("CC")
    for name in (wanted,) if wanted else COMPILERS:
        if path := shutil.which(name):
            return path
    return None


def cpu_model() -> str:
    """What -march=native depends on: the machine, the processor's name and its features."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    keys = ("model name", "flags", "Features", "CPU part")
    return "\n".join([platform.machine(), *sorted({x for x in lines if x.startswith(keys)})])


def library_path(cache: Path, flags: tuple[str, ...] = FLAGS, root: Path = STEP) -> Path:
    """Where the library for this source, flags and this processor lies in the cache folder."""
    digest = hashlib.sha256("\0".join([*flags, cpu_model()]).encode())
    for path in (root, *sorted(HERE.glob("*.h"))):  # and the headers that it may include
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return cache / f"native_{root.stem}-{digest.hexdigest()[:16]}.so"


def compile_library(compiler: str, path: Path, root: Path = STEP) -> None:
    """Compile `root` to `path`, which appears whole or not at all.

    Compilers without OpenMP or without `-march=native` build a slower library.

    Raises:
        ValueError: The compiler refused the sources; the text holds its first error.
    """
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        for flags in ((*FLAGS, THREADS_FLAG), FLAGS, PORTABLE_FLAGS):
            command = [compiler, *flags, f"-I{HERE}", "-o", str(built), str(root), "-lm"]
            try:
                run = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as error:
                raise ValueError(f"C compiler {compiler} cannot be run: {error}") from error
            if run.returncode == 0:
                built.replace(path)
                return
    lines = run.stderr.splitlines() or ["no message"]
    first = next((line for line in lines if "error" in line), lines[0])
    raise ValueError(
        f"{compiler} could not compile the native step ({first.strip()}): set CC to a working C11"
        " compiler, or use a backend that needs none"
    )


@functools.cache
def load(cache: Path) -> ctypes.CDLL:
    """Load the library of the target's step, compiled on first use into the folder `cache`.

    Raises:
        ValueError: As `load_source`.
    """
    library = load_source(cache, STEP)
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.native_step.argtypes = [pointer, pointer]
    library.native_scratch.argtypes = [pointer]
    library.native_scratch.restype = number
    library.native_linear.argtypes = [pointer, pointer, number, pointer, number]
    library.native_linear.restype = None
    library.native_join.argtypes = [*[pointer] * 6, number]
    return library


def load_source(cache: Path, root: Path) -> ctypes.CDLL:
    """Load the library of a C file that uses this folder's headers, compiled on first use (2 s).

    Raises:
        ValueError: No compiler, a failed compile, a folder that cannot be written, or a library
            that the system refuses.
    """
    path = library_path(cache, root=root)
    if not path.exists():
        compiler = find_compiler()
        if compiler is None:
            raise ValueError(
                "graph_captured on a CPU needs a C compiler (cc, gcc, clang or $CC) and found none:"
                " install gcc, or use verify=extend"
            )
        try:
            cache.mkdir(parents=True, exist_ok=True)
            compile_library(compiler, path, root)
        except OSError as error:
            raise ValueError(f"cache folder {cache} cannot be written: {error}") from error
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ValueError(
            f"{path} cannot be loaded ({error}): delete it, or choose a cache folder on a disk that"
            " may hold programs"
        ) from error
