"""The two versions as folders: the candidate's own, and the baseline's out of git by commit."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pipeline.machine.cache import built_once

TREE_BYTES = 200 * 2**20  # far above a checkout's size
SHORT = 7


@dataclass(frozen=True)
class Tree:
    """A version on disk.

    Attributes:
        path: Its root folder, with `conf` and `pipeline` in it.
        name: For people: a folder, or a git ref.
        commit: Its commit; "" where git does not know.
        is_dirty: Tracked files differ from the commit.
    """

    path: Path
    name: str
    commit: str = ""
    is_dirty: bool = False

    def __str__(self) -> str:
        """Name it with its commit."""
        if not self.commit:
            return self.name
        return f"{self.name} ({self.commit[:SHORT]}{' and changes' if self.is_dirty else ''})"


def folder_tree(setting: str, folder: str) -> Tree:
    """Return the version that lies in a folder.

    Raises:
        ValueError: It is none, naming the setting.
    """
    path = Path(folder).expanduser().absolute()
    if not is_tree(path):
        raise ValueError(f"{setting}={folder}: no specroi there (a folder with conf and pipeline)")
    if not (path / ".git").exists():
        return Tree(path, folder)
    commit = _git(path, "rev-parse", "HEAD").stdout.decode().strip()
    changed = _git(path, "status", "--porcelain", "--untracked-files=no").stdout
    return Tree(path, folder, commit, bool(changed))


def baseline_tree(baseline: str, candidate: Tree, cache: Path) -> Tree:
    """Return the baseline: a folder as it is, or a git ref, checked out once per commit.

    Raises:
        ValueError: Neither is there.
    """
    if is_tree(Path(baseline).expanduser()):
        return folder_tree("baseline", baseline)
    found = _git(candidate.path, "rev-parse", "--verify", "--quiet", f"{baseline}^{{commit}}")
    if found.returncode:
        raise ValueError(
            f"baseline={baseline}: no such folder, and no commit of that name in"
            f" {candidate.path}; fetch it (in CI with the whole history: fetch-depth 0)"
        )
    commit = found.stdout.decode().strip()
    path = built_once(
        cache / "trees" / commit, TREE_BYTES, lambda to: _check_out(candidate.path, commit, to)
    )
    if not is_tree(path):
        raise ValueError(f"baseline={baseline}: commit {commit[:SHORT]} has no conf and pipeline")
    return Tree(path, baseline, commit)


def is_tree(path: Path) -> bool:
    """Whether a folder holds a version of this project."""
    return (path / "conf" / "config.yaml").is_file() and (path / "pipeline").is_dir()


def _check_out(repository: Path, commit: str, folder: Path) -> None:
    """Write a commit's files into a folder; the repository does not learn of it."""
    archive = _git(repository, "archive", "--format=tar", commit).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def _git(repository: Path, *command: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in a repository.

    Raises:
        ValueError: There is no git.
    """
    try:
        return subprocess.run(
            ["git", "-C", str(repository), *command], capture_output=True, check=False
        )
    except FileNotFoundError:
        raise ValueError("baseline: git is not installed; give a folder instead") from None


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
