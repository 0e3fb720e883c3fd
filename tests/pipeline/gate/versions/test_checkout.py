"""The two versions: found, checked out once, and run in the environment that they need."""

import errno
import os
import subprocess
import sys

import pytest

from pipeline.gate.versions import checkout
from pipeline.gate.versions.checkout import baseline_tree, cache_of, folder_tree, interpreter
from pipeline.machine.provenance import GitFailed

PROJECT = (
    '[project]\nname = "x"\ndependencies = ["torch>={torch}"]\n[tool.ruff]\nline-length = {n}\n'
)


PERSON = ["-c", "user.name=a", "-c", "user.email=a@b"]


def run_git(folder, *command):
    subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit of a small version, and a change that is not committed."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    folder = tmp_path / "repository"
    (folder / "conf").mkdir(parents=True)
    (folder / "pipeline").mkdir()
    (folder / "conf" / "config.yaml").write_text("first: 1\n")
    (folder / "pipeline" / "__init__.py").touch()
    for command in (
        ["init", "-q"],
        ["add", "."],
        [*PERSON, "commit", "-q", "-m", "First"],
        ["tag", "v1"],
    ):
        run_git(folder, *command)
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


def refused(repository, tmp_path, baseline):
    """Return the line that refuses a baseline; the cache must not hold it afterwards."""
    candidate = folder_tree("candidate", str(repository))
    with pytest.raises(ValueError, match=f"^baseline={baseline}: ") as error:
        baseline_tree(baseline, candidate, tmp_path / "cache")
    assert "\n" not in str(error.value)
    assert not [*(tmp_path / "cache").glob("trees/[!.]*")]
    return str(error.value)


def test_a_checkout_of_another_owner_is_refused_with_gits_reason(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    line = refused(repository, tmp_path, "v1")
    assert "detected dubious ownership" in line
    assert "safe.directory" in line
    assert "fetch" not in line


def test_a_folder_of_another_owner_is_measured_all_the_same_and_says_what_is_not_known(
    repository, tmp_path, monkeypatch
):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    tree = baseline_tree(str(repository), folder_tree("candidate", str(repository)), tmp_path)
    assert (tree.path, tree.commit) == (repository, "")
    assert "(commit unknown: fatal: detected dubious ownership" in str(tree)


def partial_clone(repository, tmp_path, *options):
    run_git(repository, "config", "uploadpack.allowFilter", "true")
    run_git(repository, *PERSON, "commit", "-q", "-a", "-m", "Second")
    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "-q", *options, f"file://{repository}", str(clone))
    return clone


@pytest.mark.parametrize("kept", ["blob:none", "tree:0"])
def test_a_partial_clone_whose_remote_is_away_is_refused_with_gits_reason(
    repository, tmp_path, kept
):
    clone = partial_clone(repository, tmp_path, f"--filter={kept}")
    repository.rename(tmp_path / "away")
    line = refused(clone, tmp_path, "HEAD~1")
    assert "does not appear to be a git repository" in line


def test_a_partial_clone_whose_remote_is_there_gives_the_baselines_files(repository, tmp_path):
    clone = partial_clone(repository, tmp_path, "--filter=blob:none")
    tree = baseline_tree("HEAD~1", folder_tree("candidate", str(clone)), tmp_path / "cache")
    assert (tree.path / "conf" / "config.yaml").read_text() == "first: 1\n"


def test_a_shallow_clone_says_that_it_is_shallow(repository, tmp_path):
    clone = partial_clone(repository, tmp_path, "--depth=1")
    assert "this clone is shallow; fetch it" in refused(clone, tmp_path, "HEAD~1")


def test_a_baseline_that_is_no_commit_says_what_it_is(repository, tmp_path):
    run_git(repository, "tag", "config", "HEAD:conf/config.yaml")
    assert "names a blob in" in refused(repository, tmp_path, "config")
    assert "names a tree in" in refused(repository, tmp_path, "HEAD:conf")


def test_a_ref_to_a_commit_that_is_lost_is_refused_with_gits_reason(repository, tmp_path):
    (repository / ".git" / "refs" / "heads" / "lost").write_text("1" * 40 + "\n")
    assert "could not get object info" in refused(repository, tmp_path, "lost")


def test_a_repository_before_its_first_commit_has_no_baseline_and_is_itself_unknown(
    repository, tmp_path
):
    (repository / ".git").rename(tmp_path / "away")
    run_git(repository, "init", "-q")
    assert "commit unknown: fatal: Needed" in str(folder_tree("candidate", str(repository)))
    assert "no commit of that name" in refused(repository, tmp_path, "HEAD")


def test_a_worktree_whose_repository_is_gone_is_refused_with_gits_reason(repository, tmp_path):
    run_git(repository, "worktree", "add", "-q", str(tmp_path / "tree"))
    repository.rename(tmp_path / "away")
    assert "fatal: not a git repository: " in refused(tmp_path / "tree", tmp_path, "v1")


def test_without_git_a_ref_is_refused_and_a_folder_is_not(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "git is not installed" in refused(repository, tmp_path, "v1")
    candidate = folder_tree("candidate", str(repository))
    assert baseline_tree(str(repository), candidate, tmp_path).path == repository


def test_a_commit_with_a_submodule_is_refused_since_an_archive_leaves_it_out(repository, tmp_path):
    commit = subprocess.check_output(["git", "-C", str(repository), "rev-parse", "HEAD"], text=True)
    link = f"160000,{commit.strip()},verify"
    run_git(repository, "update-index", "--add", "--cacheinfo", link)
    run_git(repository, *PERSON, "commit", "-q", "-m", "Submodule")
    assert "verify of commit" in refused(repository, tmp_path, "HEAD")


def test_the_lock_of_another_git_at_work_is_no_obstacle(repository, tmp_path):
    (repository / ".git" / "index.lock").touch()
    candidate = folder_tree("candidate", str(repository))
    assert candidate.is_dirty
    assert baseline_tree("v1", candidate, tmp_path).commit == candidate.commit


def test_a_disk_that_fills_up_while_the_baseline_is_written_is_refused(
    repository, tmp_path, monkeypatch
):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkout.tarfile.TarFile, "extractall", full)
    with pytest.raises(ValueError, match=r"^cache: .* needs .* MB and .* free; free some or set"):
        baseline_tree("v1", folder_tree("candidate", str(repository)), tmp_path / "cache")
    assert not [*(tmp_path / "cache" / "trees").glob("[!.]*")]


def test_a_link_that_leads_out_of_the_baseline_is_refused(repository, tmp_path):
    (repository / "conf" / "out").symlink_to("/etc")
    run_git(repository, "add", ".")
    run_git(repository, *PERSON, "commit", "-q", "-m", "Link")
    assert "cannot be written" in refused(repository, tmp_path, "HEAD")


def test_an_archive_that_git_breaks_off_leaves_nothing_behind(repository, tmp_path, monkeypatch):
    def breaks(folder, *command, **more):
        if command[0] == "archive":
            raise GitFailed("error: unable to read sha1 file of conf/config.yaml")
        return real(folder, *command, **more)

    real = checkout.git
    monkeypatch.setattr(checkout, "git", breaks)
    assert "unable to read sha1 file" in refused(repository, tmp_path, "v1")


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
