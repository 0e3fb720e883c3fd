"""The interpreter and the cache of a version: shared where both versions agree, else its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

from pipeline.machine.cache import built_once

# What decides the content of the cache: a version may read what a later one wrote, and run slower.
FILLS_CACHE = (
    ("machine/cache.py", "target/source.py", "target/target.py", "target/*gguf*.py"),
    ("cache.py", "source.py", "target.py", "engine/torch/*gguf*.py"),  # until 2026-12-01
)
ENVIRONMENT_BYTES = 8 * 2**30  # torch with its CUDA libraries


def interpreter(tree: Path, candidate: Path, cache: Path, log: Path) -> str:
    """Return the Python that runs a version.

    A version that needs other packages than the candidate gets an environment that its own Makefile
    makes (`make setup`), once for all versions with the same needs.

    Args:
        tree: The version.
        candidate: The version whose environment this process runs in.
        cache: The cache folder.
        log: File for what the set-up prints.

    Raises:
        ValueError: The environment cannot be made.
    """
    needs = _needs(tree)
    if needs == _needs(candidate):
        return sys.executable
    digest = hashlib.sha256(f"{sys.version} {needs}".encode()).hexdigest()[:12]
    folder = built_once(
        cache / "environments" / digest,
        ENVIRONMENT_BYTES,
        lambda to: _set_up(tree, to / "venv", log),
    )
    return str(folder / "venv" / "bin" / "python")


def cache_of(tree: Path, candidate: Path, cache: Path) -> Path:
    """Return the cache folder of a version: the candidate's, or one for all that fill it alike."""
    digest = _cache_digest(tree)
    return cache if digest == _cache_digest(candidate) else cache / "versions" / digest


def _cache_digest(tree: Path) -> str:
    """Hash the modules that fill the cache.

    Raises:
        ValueError: The version keeps them nowhere that is known.
    """
    for layout in FILLS_CACHE:
        found = [path for name in layout for path in sorted((tree / "pipeline").glob(name))]
        if found:
            digest = hashlib.sha256()
            for path in found:
                digest.update(path.name.encode() + b"\0" + path.read_bytes())
            return digest.hexdigest()[:12]
    raise ValueError(f"{tree}: no module that fills the cache where versions of this package do")


def _needs(tree: Path) -> str:
    """Return what decides which packages a version is installed with."""
    project = tree / "pyproject.toml"
    constraints = tree / "constraints.txt"
    found = tomllib.loads(project.read_text())["project"] if project.is_file() else {}
    kept = {key: found.get(key) for key in ("requires-python", "dependencies")}
    lines = constraints.read_text().splitlines() if constraints.is_file() else []
    return json.dumps([kept, [line for line in lines if line and not line.startswith("#")]])


def _set_up(tree: Path, environment: Path, log: Path) -> None:
    """Let the version make its environment.

    Raises:
        ValueError: It could not.
    """
    command = ["make", "-C", str(tree), "setup", f"VENV={environment}", f"PYTHON={sys.executable}"]
    with log.open("a") as output:
        try:
            done = subprocess.run(command, stdout=output, stderr=output, check=False)
        except FileNotFoundError:
            raise ValueError(
                f"baseline: {tree} needs other packages than this version, and there is no make to"
                " set them up; install make"
            ) from None
    if done.returncode:
        lines = log.read_text(errors="replace").splitlines() or ["no message"]
        errors = [x.strip() for x in lines if "error:" in x.lower()]
        raise ValueError(
            f"baseline: its environment could not be made ({[*lines[:1], *errors][-1]}); see {log}"
        )
