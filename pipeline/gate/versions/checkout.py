"""The two versions as folders: the candidate's own, and the baseline's out of git by commit."""

from __future__ import annotations

import io
import subprocess
import tarfile
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
