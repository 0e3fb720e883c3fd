"""Turn a setting into a version that can run: its files, its interpreter and its cache folder.

The candidate is a folder as it lies; the baseline is another, or a commit that git writes into the
cache. A version that needs other packages gets an environment of its own, once.
"""

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
from pipeline.machine.provenance import GitFailed, git

TREE_BYTES = 200 * 2**20  # far above a checkout's size
SHORT = 7
SUBMODULE = "160000 "  # the mode of a folder that is a commit of another repository
FETCH_S = 600.0  # an archive of a partial clone fetches the files first
ENVIRONMENT_BYTES = 8 * 2**30  # torch with its CUDA libraries
# Modules that decide the content of the cache, which another version may read, and run slower.
FILLS_CACHE = (
    ("machine/cache.py", "target/source.py", "target/target.py", "target/*gguf*.py"),
    ("cache.py", "source.py", "target.py", "engine/torch/*gguf*.py"),  # until 2026-12-01
)


@dataclass(frozen=True)
class Tree:
    """A version on disk.

    Attributes:
        path: Its root folder, with `conf` and `pipeline` in it.
        name: The folder or the git ref, as it was given.
        commit: Its commit; "" for a folder outside of git, or where git does not tell.
        is_dirty: Tracked files differ from the commit.
        unknown: Why git does not tell the commit of its own checkout; "" where it does.
    """

    path: Path
    name: str
    commit: str = ""
    is_dirty: bool = False
    unknown: str = ""

    def __str__(self) -> str:
        """Name it with its commit."""
        if self.unknown:
            return f"{self.name} (commit unknown: {self.unknown})"
        if not self.commit:
            return self.name
        return f"{self.name} ({self.commit[:SHORT]}{' and changes' if self.is_dirty else ''})"


def folder_tree(setting: str, folder: str) -> Tree:
    """Return the version that lies in a folder, with its commit as far as git tells it.

    Raises:
        ValueError: It is none, naming the setting.
    """
    path = Path(folder).expanduser().absolute()
    if not is_tree(path):
        raise ValueError(f"{setting}={folder}: no specroi there (a folder with conf and pipeline)")
    if not (path / ".git").exists():
        return Tree(path, folder)
    try:
        commit = git(path, "rev-parse", "--verify", "HEAD").decode().strip()
        changed = git(path, "status", "--porcelain", "--untracked-files=no")
    except GitFailed as reason:
        return Tree(path, folder, unknown=str(reason))
    return Tree(path, folder, commit, bool(changed))


def baseline_tree(baseline: str, candidate: Tree, cache: Path) -> Tree:
    """Return the baseline: a folder as it is, or a git ref, checked out once per commit.

    Raises:
        ValueError: Neither is there, or git does not give it; with git's own reason.
    """
    if is_tree(Path(baseline).expanduser()):
        return folder_tree("baseline", baseline)
    try:
        commit = _commit(candidate.path, baseline)
        path = built_once(
            cache / "trees" / commit, TREE_BYTES, lambda to: _check_out(candidate.path, commit, to)
        )
    except GitFailed as reason:
        raise ValueError(f"baseline={baseline}: {reason}") from None
    if not is_tree(path):
        raise ValueError(f"baseline={baseline}: commit {commit[:SHORT]} has no conf and pipeline")
    return Tree(path, baseline, commit)


def is_tree(path: Path) -> bool:
    """Whether a folder holds a version of this project."""
    return (path / "conf" / "config.yaml").is_file() and (path / "pipeline").is_dir()


def _commit(repository: Path, ref: str) -> str:
    """Return the commit that a ref names.

    Raises:
        GitFailed: Git refuses the repository, or there is no such commit, and what would help.
    """
    is_shallow = git(repository, "rev-parse", "--is-shallow-repository").strip() == b"true"
    try:
        return git(repository, "rev-parse", "--verify", f"{ref}^{{commit}}").decode().strip()
    except GitFailed:  # git says no more than "Needed a single revision"
        pass
    try:
        kind = git(repository, "cat-file", "-t", ref).decode().strip()
    except GitFailed as reason:
        if not str(reason).startswith("fatal: Not a valid object name"):
            raise  # it is named, and lost or broken
        known = "this clone is shallow; " if is_shallow else ""
        raise GitFailed(
            f"no such folder, and no commit of that name in {repository}; {known}fetch it (in CI"
            " with the whole history: fetch-depth 0)"
        ) from None
    raise GitFailed(f"names a {kind} in {repository}, not a commit")


def _check_out(repository: Path, commit: str, folder: Path) -> None:
    """Write a commit's files into a folder; the repository does not learn of it.

    Raises:
        GitFailed: Git lacks files of it, it holds submodules, which an archive leaves out, or a
            link that leads out of the folder.
    """
    listed = git(repository, "ls-tree", "-r", commit, timeout_s=FETCH_S).decode(errors="replace")
    modules = [line.split("\t")[1] for line in listed.splitlines() if line.startswith(SUBMODULE)]
    if modules:
        raise GitFailed(
            f"{', '.join(modules)} of commit {commit[:SHORT]} is a submodule; check the commit out"
            " with it and give that folder"
        )
    archive = git(repository, "archive", "--format=tar", commit, timeout_s=FETCH_S)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
    except tarfile.TarError as error:
        raise GitFailed(f"files of commit {commit[:SHORT]} cannot be written: {error}") from None


def interpreter(tree: Path, candidate: Path, cache: Path, log: Path) -> str:
    """Return the Python that runs a version.

    A version that needs other packages than the candidate gets an environment from its own Makefile
    (`make setup`), once for all versions with the same needs.

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
    """Return the cache folder of a version: the candidate's, or one of those that fill it alike.

    Raises:
        ValueError: A version keeps the modules that fill the cache nowhere that is known.
    """
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
    """Return the requirements and constraints that a version is installed with."""
    project = tree / "pyproject.toml"
    constraints = tree / "constraints.txt"
    found = tomllib.loads(project.read_text())["project"] if project.is_file() else {}
    kept = {key: found.get(key) for key in ("requires-python", "dependencies")}
    lines = constraints.read_text().splitlines() if constraints.is_file() else []
    return json.dumps([kept, [line for line in lines if line and not line.startswith("#")]])


def _set_up(tree: Path, environment: Path, log: Path) -> None:
    """Make a version's environment by its own Makefile.

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
