"""The code's commit: known, or unknown with git's own reason; never silently absent or clean."""

import os
import subprocess

import pytest

from pipeline.machine import provenance as module
from pipeline.machine.provenance import GitFailed, git, here, known_commit, provenance
from pipeline.report.origin import origin


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A committed copy of the one file that asks for its own commit."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "provenance.py").write_text("first\n")
    monkeypatch.setattr(module, "__file__", str(folder / "provenance.py"))
    commit(folder)
    return folder


def commit(folder):
    person = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*person, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)


def test_a_commit_is_known_and_a_changed_file_makes_it_dirty(checkout):
    facts = provenance()
    assert len(known_commit(facts)) == 40
    assert facts["dirty"] == "false"
    (checkout / "provenance.py").write_text("second\n")
    assert provenance()["dirty"] == "true"


def test_a_checkout_of_another_owner_says_safe_directory(checkout, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    facts = here()
    assert facts["commit"].startswith("unknown (fatal: detected dubious ownership in repository")
    assert "safe.directory" in facts["commit"]
    assert "\n" not in facts["commit"]
    assert "dirty" not in facts
    assert known_commit(facts) == ""
    assert f"Measured with: commit {facts['commit']}, cpu" in "\n".join(origin([], {}, facts))


def test_without_git_the_reason_is_that_git_is_missing(checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance()["commit"] == "unknown (git is not installed)"


def test_a_copy_outside_of_git_and_one_before_its_first_commit_are_unknown(
    checkout, monkeypatch, tmp_path
):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "provenance.py"))
    assert "not a git repository" in provenance()["commit"]
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert provenance()["commit"].startswith("unknown (fatal: Needed a single revision")


def test_an_installed_copy_does_not_take_the_commit_of_the_project_around_it(checkout, monkeypatch):
    installed = checkout / "venv"
    installed.mkdir()
    (installed / "provenance.py").touch()
    monkeypatch.setattr(module, "__file__", str(installed / "provenance.py"))
    assert provenance()["commit"] == (
        "unknown (the git repository around it does not hold this code)"
    )


def test_a_worktree_whose_repository_is_gone_is_unknown(checkout):
    (checkout / ".git").rename(checkout.parent / "gone")
    (checkout / ".git").write_text("gitdir: /nowhere/at/all\n")
    assert provenance()["commit"] == "unknown (fatal: not a git repository: /nowhere/at/all)"


def test_changes_that_git_cannot_list_are_unknown_and_not_denied(checkout, monkeypatch):
    def refuses(folder, *command, **_):
        if command[0] == "status":
            raise GitFailed("fatal: unable to read the index")
        return git(folder, *command)

    monkeypatch.setattr(module, "git", refuses)
    facts = provenance()
    assert len(known_commit(facts)) == 40
    assert facts["dirty"] == "unknown (fatal: unable to read the index)"


def test_the_lock_of_another_git_at_work_hides_neither_commit_nor_changes(checkout):
    (checkout / ".git" / "index.lock").touch()
    (checkout / "provenance.py").write_text("second\n")
    assert len(known_commit(provenance())) == 40
    assert provenance()["dirty"] == "true"


def test_the_repository_of_a_hook_is_not_taken_for_this_one(checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert len(known_commit(provenance())) == 40


def test_git_that_hangs_is_ended_and_says_so(checkout):
    alias = ["-c", "alias.wait=!sleep 3"]
    with pytest.raises(GitFailed, match=r"git -c did not end within 0\.2 s"):
        git(checkout, *alias, "wait", timeout_s=0.2)


def test_the_password_in_a_remotes_address_is_hidden(checkout):
    with pytest.raises(GitFailed) as error:
        git(checkout, "fetch", "-q", "file://name:secret@/nowhere")
    assert "secret" not in str(error.value)
