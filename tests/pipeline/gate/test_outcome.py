"""What a run leaves for people, for CI and for a pull request."""

import json
import math
from xml.etree import ElementTree

import pytest

from pipeline.gate.arm import arm
from pipeline.gate.decision.promise import Promise
from pipeline.gate.decision.sequential import MetricVerdict, Verdict
from pipeline.gate.exact import Finding, Weight
from pipeline.gate.outcome import (
    GateVerdict,
    Outcome,
    facts,
    github_lines,
    junit,
    markdown,
    terminal,
)
from tests.pipeline.synthetic import make_record, make_response

FOUND = Finding("output", Weight.CHANGED, "ngram", "'a|b' (7) instead of 'c' (8)", "copy-1", 3)
SLOW = MetricVerdict(
    "ngram: verify_ms",
    Verdict.REGRESSION,
    rests_on=24,
    slow_down=0.05,
    at_least=0.031,
    at_most=0.07,
    candidate=21.0,
    reference=20.0,
    power="99%",
)
OPEN = MetricVerdict("ngram: ms_per_token", Verdict.UNDECIDED, 0, 0.01, -math.inf, math.inf)


def outcome(verdict, **changes):
    cell = arm(make_record("ngram", "graph_captured", [make_response()]), "ngram")
    fixed = {"mode": "side by side", "candidate": ". (abc)", "reference": "main (def)"}
    fixed |= {"promise": Promise(), "arms": [(cell, cell)], "seconds": 61.0, "measured": "2 rounds"}
    return Outcome(verdict=verdict, **fixed | changes)


def test_a_slow_down_and_a_changed_token_are_both_in_every_output(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    found = outcome(GateVerdict.REGRESSION, findings=[FOUND], timed=[SLOW])
    for text in (terminal(found), markdown(found), github_lines(found)):
        assert "output token 3" in text
        assert "5.0%" in text
    assert (
        "REGRESSION: output of ngram, prompt copy-1, output token 3; ngram: verify_ms is 5.0%"
        in (terminal(found))
    )
    suite = ElementTree.fromstring(junit(found))
    assert [suite.get(k) for k in ("tests", "failures", "errors", "skipped")] == list("3200")


def test_an_undecided_metric_is_an_error_and_one_cut_short_by_a_finding_is_skipped():
    advice = "undecided: repeat with gate.max_rounds=9"
    suite = ElementTree.fromstring(
        junit(outcome(GateVerdict.UNDECIDED, timed=[OPEN], advice=advice))
    )
    assert [suite.get(k) for k in ("failures", "errors", "skipped")] == list("010")
    cut = outcome(GateVerdict.REGRESSION, timed=[OPEN], findings=[FOUND])
    suite = ElementTree.fromstring(junit(cut))
    assert [suite.get(k) for k in ("failures", "errors", "skipped")] == list("101")


def test_differences_are_errors_and_all_of_them_are_named(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    found = outcome(
        GateVerdict.NOT_COMPARABLE, differences=["width 3", "100 % other\nprompts"], arms=()
    )
    suite = ElementTree.fromstring(junit(found))
    assert suite.get("errors") == "1"
    assert suite.find("testcase/error").text == "width 3\n100 % other\nprompts"
    assert github_lines(found) == (
        "::error title=specroi gate not comparable::width 3\n"
        "::error title=specroi gate not comparable::100 %25 other%0Aprompts\n"
    )


def test_outside_of_github_there_are_no_annotations(monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert github_lines(outcome(GateVerdict.REGRESSION, findings=[FOUND])) == ""


def test_a_comment_is_one_heading_and_two_tables_with_safe_cells():
    text = markdown(outcome(GateVerdict.PASS, timed=[SLOW], notes=["a note"]))
    assert text.startswith("### specroi gate: PASS: nothing exact changed")
    assert text.count("| :-- |") == 2
    assert "- a note" in text


def test_many_findings_are_cut_in_what_people_read_and_whole_in_the_facts():
    found = outcome(GateVerdict.REGRESSION, findings=[FOUND] * 50)
    assert "… and 30 more, in gate.json" in terminal(found)
    assert len(facts(found)["findings"]) == 50


def test_limits_that_are_none_are_null_in_the_facts():
    text = json.dumps(facts(outcome(GateVerdict.UNDECIDED, timed=[OPEN])))
    data = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert data["timed"][0]["at_least"] is None
    assert data["status"] == 2
