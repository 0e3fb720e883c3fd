"""A version of either layout is served, and one that cannot be imported says what it lacks."""

import sys

import pytest

from pipeline.gate.versions.checkout import Tree
from pipeline.gate.versions.version import Side, SideFailed
from tests.pipeline.gate.small_versions import make_version

JOBS = [["drafter=none", "verify=graph_captured"]]


@pytest.fixture
def serve(tmp_path):
    """Start the process of a version."""
    started = []

    def start(folder):
        log = tmp_path / "log"
        started.append(Side(Tree(folder, "x"), sys.executable, tmp_path, f"test-{folder}", log))
        return started[-1]

    yield start
    for side in started:
        side.kill()


def older(folder):
    """Write a version as they were laid out before its modules had rooms."""
    make_version(folder)
    build = folder / "pipeline" / "sweep" / "build.py"
    text = build.read_text().replace(".parents[2]", ".parents[1]")
    (folder / "pipeline" / "build.py").write_text(text)
    build.unlink()
    return folder


@pytest.mark.parametrize("make", [make_version, older])
def test_a_version_of_either_layout_builds_its_cells(serve, tmp_path, make):
    (built,) = serve(make(tmp_path / "version")).ask("build", 60.0, jobs=JOBS)
    assert built["record"]["label"] == "none × graph_captured"
    assert len(built["prompts"]) == 12


def test_a_version_without_any_module_that_builds_cells_says_so(serve, tmp_path):
    (older(tmp_path / "version") / "pipeline" / "build.py").unlink()
    with pytest.raises(SideFailed, match=r"No module named 'pipeline\.build'"):
        serve(tmp_path / "version").ask("build", 60.0, jobs=JOBS)


def test_a_package_that_a_version_lacks_is_named_and_not_the_older_layout(serve, tmp_path):
    folder = make_version(tmp_path / "version")
    build = folder / "pipeline" / "sweep" / "build.py"
    build.write_text("import a_package_that_is_not_installed\n" + build.read_text())
    with pytest.raises(SideFailed, match="No module named 'a_package_that_is_not_installed'"):
        serve(folder).ask("build", 60.0, jobs=JOBS)


def test_an_answer_that_is_not_json_is_a_reason_and_no_crash(serve, tmp_path):
    folder = make_version(tmp_path / "version")
    build = folder / "pipeline" / "sweep" / "build.py"
    # The stream of answers is the first file that the process opens.
    build.write_text("import os\nos.write(3, b'nothing\\n')\n" + build.read_text())
    with pytest.raises(SideFailed, match="the answer is not JSON; see"):
        serve(folder).ask("build", 60.0, jobs=JOBS)
