"""The two versions: found, checked out once, and run in the environment that they need."""

import subprocess
import sys

import pytest

from pipeline.gate.versions.checkout import baseline_tree, cache_of, folder_tree, interpreter

PROJECT = (
    '[project]\nname = "x"\ndependencies = ["torch>={torch}"]\n[tool.ruff]\nline-length = {n}\n'
)


@pytest.fixture
def repository(tmp_path):
    """A repository with one commit of a small version, and a change that is not committed."""
    folder = tmp_path / "repository"
    (folder / "conf").mkdir(parents=True)
    (folder / "pipeline").mkdir()
    (folder / "conf" / "config.yaml").write_text("first: 1\n")
    (folder / "pipeline" / "__init__.py").touch()
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "First"],
        ["tag", "v1"],
    ):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    (folder / "conf" / "config.yaml").write_text("second: 2\n")
    return folder


def test_a_git_ref_is_checked_out_once_by_commit_and_leaves_the_repository_alone(
    repository, tmp_path
):
    candidate = folder_tree("candidate", str(repository))
    assert str(candidate).endswith("and changes)")
    tree = baseline_tree("v1", candidate, tmp_path)
    assert (tree.path / "conf" / "config.yaml").read_text() == "first: 1\n"
    assert str(tree) == f"v1 ({tree.commit[:7]})"
    (tree.path / "here").touch()
    assert (baseline_tree("HEAD", candidate, tmp_path).path / "here").exists()
    listed = subprocess.run(
        ["git", "-C", str(repository), "worktree", "list"], capture_output=True, check=True
    )
    assert listed.stdout.count(b"\n") == 1


def test_a_folder_is_taken_as_it_is(repository, tmp_path):
    candidate = folder_tree("candidate", str(repository))
    assert baseline_tree(str(repository), candidate, tmp_path).path == repository


def test_what_is_not_there_is_refused_by_name(repository, tmp_path):
    candidate = folder_tree("candidate", str(repository))
    with pytest.raises(ValueError, match=r"baseline=v2: no such folder, and no commit .*fetch"):
        baseline_tree("v2", candidate, tmp_path)
    with pytest.raises(ValueError, match=r"candidate=.*/nothing: no specroi there"):
        folder_tree("candidate", str(tmp_path / "nothing"))


def write_version(folder, torch="2.11", n=100, makefile="setup:\n\tfalse\n"):
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT.format(torch=torch, n=n))
    (folder / "constraints.txt").write_text("torch==2.13.0\n")
    (folder / "Makefile").write_text(makefile)
    return folder


def test_equal_needs_share_this_interpreter_whatever_else_changed(tmp_path):
    ours, theirs = write_version(tmp_path / "a"), write_version(tmp_path / "b", n=80)
    assert interpreter(theirs, ours, tmp_path, tmp_path / "log") == sys.executable


def test_other_needs_are_set_up_once_by_the_versions_own_makefile(tmp_path):
    setup = "setup:\n\t$(PYTHON) -m venv --without-pip $(VENV)\n\techo made >> made\n"
    ours = write_version(tmp_path / "a")
    theirs = write_version(tmp_path / "b", torch="2.12", makefile=setup)
    found = [interpreter(theirs, ours, tmp_path, tmp_path / "log") for _ in range(2)]
    assert found[0] == found[1] != sys.executable
    command = [found[0], "-c", "import sys; print(sys.prefix)"]
    prefix = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert prefix == str(tmp_path / "environments" / prefix.split("/")[-2] / "venv")
    assert (theirs / "made").read_text() == "made\n"


def test_an_environment_that_cannot_be_made_says_why(tmp_path):
    setup = "setup:\n\t@echo ERROR: no such package; exit 1\n"
    ours = write_version(tmp_path / "a")
    theirs = write_version(tmp_path / "b", torch="99", makefile=setup)
    with pytest.raises(ValueError, match=r"its environment could not be made .*no such package"):
        interpreter(theirs, ours, tmp_path, tmp_path / "log")


def test_versions_that_fill_the_cache_otherwise_do_not_read_each_others(tmp_path):
    ours, theirs = (tmp_path / name for name in ("ours", "theirs"))
    for tree in (ours, theirs):
        (tree / "pipeline").mkdir(parents=True)
        (tree / "pipeline" / "source.py").write_text("LAYOUT = 1\n")
    assert cache_of(theirs, ours, tmp_path) == tmp_path
    (ours / "pipeline" / "source.py").write_text("LAYOUT = 2\n")
    assert cache_of(ours, ours, tmp_path) == tmp_path
    other = cache_of(theirs, ours, tmp_path)
    assert other.parent == tmp_path / "versions"
    assert cache_of(theirs, ours, tmp_path) == other
