"""Two versions side by side, as real processes: what passes, what fails, what cannot be said."""

import json
import re
import socket
from xml.etree import ElementTree

import pytest
from mlflow import MlflowClient

from pipeline.gate.__main__ import main
from tests.pipeline.gate.small_versions import RESPONSE, make_version

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@pytest.fixture
def gate(runs, tmp_path):
    """Run the gate on two versions; returns its exit status and what it wrote."""

    def run(ours, theirs=None, *settings):
        base = make_version(tmp_path / "theirs", **({"noise": "b"} | (theirs or {})))
        mine = make_version(tmp_path / "ours", **ours)
        output = tmp_path / "out"
        given = [f"candidate={mine}", f"baseline={base}", f"runs={runs}", f"gate.output={output}"]
        status = main([*given, *settings])
        return status, json.loads((output / "gate.json").read_text())

    return run


def test_equal_versions_pass_and_stop_early(gate, runs, tmp_path, capsys):
    status, found = gate({})
    assert status == 0
    assert (found["findings"], found["differences"]) == ([], [])
    assert {t["verdict"] for t in found["timed"]} == {"pass"}
    assert int(found["measured"].split()[0]) < 8
    assert "PASS: nothing exact changed" in capsys.readouterr().out
    suite = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("7", "0", "0")
    client = MlflowClient(f"sqlite:///{runs}/mlflow.db")
    (run,) = client.search_runs(["1"], "tags.kind = 'gate'")
    assert run.data.tags["verdict"] == "pass"
    assert run.data.metrics["slow_down/ngram _ graph_captured_ verify_ms"] < 0.03
    names = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert {"comment.md", "junit.xml", "gate.json", "candidate.log"} <= names


def test_a_slower_step_is_a_regression_in_every_cell_and_no_finding(gate):
    status, found = gate({"slow": 1.05})
    assert status == 1
    assert found["findings"] == []
    verdicts = {t["name"]: t["verdict"] for t in found["timed"]}
    assert verdicts["none × graph_captured: decode_ms"] == "regression"
    assert verdicts["ngram × graph_captured: verify_ms"] == "regression"
    slow = {t["name"]: t["slow_down"] for t in found["timed"]}
    assert slow["ngram × graph_captured: verify_ms"] == pytest.approx(0.05, abs=0.01)


def test_a_faster_step_passes(gate):
    status, found = gate({"slow": 0.9})
    assert status == 0
    assert all(t["slow_down"] < 0 for t in found["timed"])


def test_one_changed_token_is_found_after_one_round_with_its_place(gate):
    tokens = [*range(100, 109), 999, *range(110, 117)]
    status, found = gate({"tokens": {"p7": tokens}})
    assert status == 1
    first = found["findings"][0]
    assert (first["kind"], first["prompt"], first["position"]) == ("output", "p7", 9)
    assert "(999) instead of" in first["text"]
    assert found["measured"].startswith("1 rounds")


def test_a_lower_accept_length_fails_by_itself_with_the_step_where_it_began(gate):
    fewer = [2, 2, 1, 2, 2, 2, 2, 2, 1]  # nine steps for sixteen tokens
    status, found = gate({"committed": {"p3": fewer}})
    assert status == 1
    kinds = {f["kind"]: f for f in found["findings"]}
    assert set(kinds) == {"acceptance", "steps"}
    assert "accept length 2.0000 → 1.9" in kinds["acceptance"]["text"]
    assert (kinds["steps"]["prompt"], kinds["steps"]["position"]) == ("p3", 5)
    assert "8 → 9 verify steps; step 3 committed 1 instead of 2" in kinds["steps"]["text"]


def test_a_higher_accept_length_is_shown_and_passes(gate):
    status, found = gate({"committed": {"p3": [4, 2, 2, 2, 2, 2, 2]}})
    assert status == 0
    assert {f["weight"] for f in found["findings"]} == {"better"}


def test_a_cell_that_contradicts_its_label_fails(gate):
    status, found = gate({"graph_share": 0.5, "contradiction": "half of the steps were eager"})
    assert status == 1
    assert {f["kind"] for f in found["findings"]} == {"engine", "void"}


def test_what_differs_is_listed_whole_and_nothing_is_measured(gate, capsys):
    changed = {"threads": "1", "dtype": "bfloat16", "target_digest": "other", "torch": "2.14.0"}
    params = {"target": "t", "engine": "e", "workload": "w", "prompts_digest": "q"}
    status, found = gate({"settings": changed, "params": params | {"verify": "graph_captured"}})
    assert status == 2
    assert found["differences"] == [
        "none × graph_captured: prompts q, the reference has p",
        "ngram × graph_captured: prompts q, the reference has p",
    ]
    status, found = gate({"settings": changed, "width": 3})
    assert status == 2
    assert any("width 3, the reference has 4" in line for line in found["differences"])
    status, found = gate({"settings": changed})
    assert [line for line in found["differences"] if line.startswith("none")] == [
        "none × graph_captured: model hash other, the reference has d",
        "none × graph_captured: dtype bfloat16, the reference has float32",
    ]
    assert found["timed"] == []
    assert "NOT COMPARABLE: 4 differences" in capsys.readouterr().out


def test_a_version_that_would_choose_other_threads_runs_on_the_references(gate):
    settings = {"threads": "1", "dtype": "float32", "target_digest": "d", "torch": "2.13.0"}
    status, found = gate({"settings": settings})
    assert (status, found["differences"]) == (0, [])
    assert [ours["settings"]["threads"] for ours, _ in found["arms"]] == ["2", "2"]


def test_another_torch_on_the_other_side_is_a_note(gate):
    changed = {"threads": "2", "dtype": "float32", "target_digest": "d", "torch": "2.14.0"}
    status, found = gate({"settings": changed})
    assert status == 0
    assert found["notes"] == ["torch version 2.14.0, the reference has 2.13.0"]


def test_noise_that_hides_the_smallest_effect_is_undecided_and_asks_for_rounds(gate, capsys):
    status, found = gate({"sigma": 0.14}, {"sigma": 0.14, "noise": "b"}, "gate.max_rounds=2")
    assert status == 2
    assert found["verdict"] == "undecided"
    assert re.search(r"repeat with gate\.max_rounds=\d+ gate\.max_seconds=\d+", found["advice"])
    assert "UNDECIDED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        ("build", r"build: ValueError: drafter=ngram: no such thing in this version"),
        ("start", r"start: RuntimeError: no weights at all"),
        ("kill", r"answer: killed by SIGKILL"),
        ("hang", r"answer did not finish within 3 s"),
    ],
)
def test_a_version_that_cannot_run_is_not_comparable_and_says_why(gate, tmp_path, breaks, reason):
    theirs = {"breaks": breaks, "mark": str(tmp_path / "mark")}
    limit = 3 if breaks == "hang" else 600
    status, found = gate({}, theirs, f"launcher.repetition_timeout_s={limit}")
    assert status == 2
    assert len(found["differences"]) == 1
    assert reason in found["differences"][0]
    assert str(tmp_path / "theirs") in found["differences"][0]


def test_an_older_version_that_counts_less_is_not_comparable(gate):
    status, found = gate({}, {"response_fields": [f for f in RESPONSE if f != "depth"]})
    assert status == 2
    assert found["differences"] == ["a version cannot run this: its Response has no depth"]


def test_a_verdict_stands_where_mlflow_is_away(gate, capsys):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    status, found = gate({}, {}, f"tracking.uri=http://127.0.0.1:{port}")
    assert (status, found["verdict"]) == (0, "pass")
    assert "not logged, no trend: tracking.uri=http://127.0.0.1" in capsys.readouterr().out
