"""First lines, table, plan and command line recommend the same, since one function decides."""

import re

import pytest

from pipeline.judge.comparison import compare
from pipeline.measure.wording import arm_names
from pipeline.record.record import save_record, save_repetition
from pipeline.record.sweep_folder import create_sweep
from pipeline.report import write_report
from pipeline.report.investment import PLAN
from pipeline.roi.__main__ import main
from pipeline.roi.text import next_lever, next_step
from pipeline.roi.verdict import class_verdicts, furthest
from tests.pipeline.synthetic import make_plain, make_record, make_response, make_sweep

PLAIN = {("none", "extend"): (0.0, 38.0), ("none", "graph_captured"): (0.0, 11.4)}
SWEEPS = {
    "some classes pay": PLAIN | {("ngram", "graph_captured"): (0.1, 16.2)},
    "all pay": PLAIN | {("eagle3", "graph_captured"): (0.1, 11.6)},
    "only a bound on verify": PLAIN | {("ngram", "extend"): (0.1, 68.0)},
    "only a bound on draft time": PLAIN | {("eagle3", "graph_captured"): (33.0, 12.0)},
    "nothing helps": PLAIN | {("eagle3", "graph_captured"): (60.0, 90.0)},
}


@pytest.mark.parametrize("cost", SWEEPS.values(), ids=SWEEPS)
def test_every_place_of_a_sweep_recommends_the_same(cost, tmp_path, capsys):
    records = make_sweep(prompts_per_class=3, num_tokens=48, cost=cost)
    folder = create_sweep(tmp_path, [r.cell_id for r in records], provenance={})
    for record in records:
        save_record(record, folder.cell(record.cell_id))
        for number, responses in enumerate(record.repetitions):
            save_repetition(responses, number, folder.cell(record.cell_id))
    (comparison,) = compare(records)
    verdicts = class_verdicts(comparison, arm_names(comparison.records))
    first = furthest(verdicts)

    report = write_report(records, folder.path, {}).read_text()
    assert main([f"sweep={folder.path}"]) == 0
    told = capsys.readouterr().out

    line = f"**Next, on {first.category}:** {next_step(first.verdict)}"
    assert line in report.split("\n#")[0]
    assert line in (folder.path / PLAN).read_text()
    assert any(line in noted for noted in folder.facts["verdict"])
    for found in verdicts:
        row = rf"\| {found.category} \| {re.escape(found.name)} \| (.*?) \|"
        assert re.search(row, report).group(1) == next_lever(found.verdict)[0]
        assert f"- **Next:** {next_step(found.verdict)}\n" in told


def test_a_bound_is_next_where_nothing_else_could_close_the_gap():
    """A server at batch 4: accept length 2.05, break-even 4.09, of which verify alone is 1.04."""
    steps = 20  # 41 tokens; a step is 10.4 ms of verify, 29.5 of draft and 1 of host
    plain = [make_plain(num_tokens=41, verify_ms=(9.0,) * 41)]
    slow = make_response(
        committed=(2,) * (steps - 1) + (3,), verify_ms=(10.4,) * steps, draft_ms=(29.5,) * steps
    )
    records = [
        make_record("none", "graph_captured", plain, plain),
        make_record("eagle3", "graph_captured", [slow], [slow]),
    ]
    (comparison,) = compare(records)
    (found,) = class_verdicts(comparison, arm_names(comparison.records))
    at = found.verdict.situation

    assert at.accept_length == pytest.approx(2.05)
    assert at.levers.break_even == pytest.approx(4.09, abs=0.01)
    assert at.levers.break_even_floor == pytest.approx(1.04, abs=0.01)
    assert next_lever(found.verdict)[0] == "draft and host for nothing (bound)"
    assert "the only lever that could close the gap alone" in next_step(found.verdict)
    assert "To settle it, time drafter and host apart" in next_step(found.verdict)
