"""The report fits a few screens however large the grid is, and says nothing twice."""

import re
from dataclasses import replace

import pytest

from pipeline.judge.comparison import compare
from pipeline.measure.wording import number
from pipeline.record.record import Status
from pipeline.report import write_report
from pipeline.track.metrics import metrics
from tests.pipeline.synthetic import make_sweep

DRAFTERS = ("none", *(f"drafter_{i}" for i in range(9)))
BACKENDS = {"extend": 40.0, "graph_captured": 14.0, "fused_allreduce": 12.0}
THIRTY = {
    (drafter, verify): (0.0 if drafter == "none" else 0.5 + i, ms * (1 + 0.3 * (i > 0)))
    for i, drafter in enumerate(DRAFTERS)
    for verify, ms in BACKENDS.items()
}


@pytest.fixture(scope="module")
def sweep():
    return make_sweep(2, 40, cost=THIRTY)


@pytest.fixture(scope="module")
def folder(sweep, tmp_path_factory):
    found = tmp_path_factory.mktemp("report")
    write_report(sweep, found, {"commit": "0123abc"})
    return found


def texts(folder):
    return [(folder / name).read_text() for name in ("report.md", "report-details.md")]


def test_thirty_cells_make_a_report_of_a_few_screens(folder):
    report, details = texts(folder)
    assert report.count("\n") < 110
    assert "(report-details.md)" in report.splitlines()[-1]
    assert details.count("\n### ") > 5


def test_the_first_screen_holds_verdict_break_even_and_a_line_a_cell(sweep, folder):
    report, _ = texts(folder)
    first, rest = report.split("\n![", 1)
    assert "Next, on " in first
    assert "| accept length | break-even | above it |" in first
    for record in sweep:
        assert first.count(f"\n| {record.label} ") == 1
    assert "## What to invest in" in rest.split("\n\n")[1]


def test_the_best_baseline_is_itself_without_an_interval(folder):
    (line,) = (x for x in texts(folder)[0].splitlines() if "(best baseline) |" in x)
    assert line.split(" | ")[5].endswith(" 1.00x")


def test_the_main_table_holds_what_is_tracked(sweep, folder):
    report, _ = texts(folder)
    (comparison,) = compare(sweep)
    for cell_id, measurement in comparison.measurements.items():
        flat = metrics(measurement)
        label = next(r.label for r in sweep if r.cell_id == cell_id)
        (line,) = (x for x in report.splitlines() if x.startswith(f"| {label} "))
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        for category, cell in zip(("chat", "code", "copy", "math"), cells[1:5], strict=True):
            speed, times = flat[f"tok_s/{category}"], flat[f"speed_up/{category}"]
            assert cell == f"{number(speed)} {times:.2f}x"
        assert cells[6] == f"{flat['accept_length']:.2f}"
        assert cells[7] == ("–" if measurement.is_baseline else f"{flat['break_even']:.2f}")


def test_no_sentence_is_said_twice(folder):
    for text in texts(folder):
        told = [
            line
            for line in text.split("```")[0].splitlines()
            if len(line) > 60 and not line.startswith("|")
        ]
        assert [line for line in told if told.count(line) > 1] == []
    levers = texts(folder)[1].split("## What each lever is worth")[1].split("\n## ")[0]
    assert not [line for line in levers.splitlines() if line.startswith("|") and "https" in line]
    assert levers.count("public figures [1]") > 1
    assert levers.count("- [1] ") == 1


def test_every_table_is_whole_and_every_link_leads_to_a_file(folder):
    for text in texts(folder):
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1
        for target in re.findall(r"\]\(([^)]+)\)", text):
            assert target.startswith("https://") or (folder / target).is_file()


def test_the_page_folds_what_is_behind_the_report(folder):
    page = (folder / "report.html").read_text()
    shown, *folded = page.split("<details>")
    assert "What to invest in</h2>" in shown
    assert "Speed by workload class" not in shown
    headings = re.findall(r"^## (.*)$", texts(folder)[1], re.MULTILINE)
    plan = (folder / "eagle-fast-verify.md").read_text()
    headings += re.findall(r"^# (.*)$", plan, re.MULTILINE)
    assert len(folded) == page.count("</details>") == len(headings)
    for heading, section in zip(headings, folded, strict=True):
        assert section.startswith("<summary>")
        assert heading.split("'")[0] in section.split("</summary>")[0]
    assert ".md" not in re.sub(r"<pre>.*?</pre>", "", shown, flags=re.DOTALL), "no link leads away"
    assert "When to stop" in folded[-1]
    assert page.count("<img ") == page.count('src="data:image/png;base64,') == 6


def test_a_log_that_looks_like_a_heading_folds_nothing(sweep, tmp_path):
    failed = [
        replace(r, repetitions=(), log_tail="## a heading\n</div>").ended(Status.FAILED, f"{i}")
        for i, r in enumerate(sweep[:3])
    ]
    write_report(failed, tmp_path, {})
    page = (tmp_path / "report.html").read_text()
    assert "<summary>a heading" not in page
    assert page.count("## a heading") == 4, "the first cell's at once, then each of them"


def test_all_reduces_that_could_not_be_fused_are_counted_apart(tmp_path):
    partly = {
        "allreduce": "fused",
        "allreduces_per_step": 97.0,
        "fused_allreduces_per_step": 95.0,
        "fusable_allreduces_per_step": 95.0,
    }
    cells = [
        replace(r, proof=replace(r.proof, **partly), params=r.params | {"parallelism.tp": "2"})
        for r in make_sweep(2, 40)
    ]
    write_report(cells, tmp_path, {})
    report, _ = texts(tmp_path)
    assert "| fused 95.0 of 97.0 |" in report


@pytest.mark.parametrize(("batch", "said"), [("1", False), ("8", True)])
def test_under_load_the_table_says_how_many_requests_ran(tmp_path, batch, said):
    cells = [
        replace(
            r,
            params=r.params | {"parallelism.batch": batch},
            proof=replace(r.proof, running_requests=6.4),
        )
        for r in make_sweep(2, 40)
    ]
    write_report(cells, tmp_path, {})
    report, details = texts(tmp_path)
    assert ("(batch=8)" in report) == said
    assert ("Decode tok/s of one request" in report) == said
    assert ("| running, of 8 | tok/s of all |" in report) == said
    assert report.count("| 6.40 | ") == 4 * said
    assert ("batch 8 instead of 1" in details) != said


def test_more_classes_than_a_page_is_wide_are_left_to_the_tables_behind(tmp_path):
    def split(response):
        return replace(response, category=f"{response.category} of {response.prompt_id}")

    many = [
        replace(r, repetitions=tuple(tuple(map(split, each)) for each in r.repetitions))
        for r in make_sweep(4, 40)
    ]
    write_report(many, tmp_path, {})
    report, details = texts(tmp_path)
    assert "\n| cell | all (95 %) | accept length |" in report
    assert report.splitlines()[1].count(", break-even ") == 6
    assert "A drafter is not shown to gain on 10 more: " in report.splitlines()[1]
    assert details.count("\n### copy of copy-3 (1 prompt)") == 1
