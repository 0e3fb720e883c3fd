"""The plan and the pictures come from the sweep's own cells, and say what no cell shows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.judge.comparison import compare
from pipeline.measure.wording import cell_names
from pipeline.record.record import save_record, save_repetition
from pipeline.record.sweep_folder import create_sweep
from pipeline.report.investment import PLAN, plan_blocks, sections
from pipeline.report.plots.investment import iso_speed, waterfall
from pipeline.roi.__main__ import main
from pipeline.roi.step_anatomy import anatomy, in_order
from pipeline.roi.verdict import class_verdicts
from tests.pipeline.synthetic import make_sweep, measured_later
from verify.breakdown import Breakdown

ALONE = {("none", "graph_captured"): (0.0, 10.0), ("eagle3", "extend"): (3.0, 36.0)}
THREE = {
    ("none", "extend"): (0.0, 30.0),
    ("none", "graph_captured"): (0.0, 12.0),
    ("none", "fused_allreduce"): (0.0, 10.0),
    ("eagle3", "extend"): (3.0, 36.0),
    ("eagle3", "graph_captured"): (3.0, 16.0),
    ("eagle3", "fused_allreduce"): (3.0, 13.0),
}


@pytest.fixture(scope="module")
def comparison():
    (found,) = compare(make_sweep(prompts_per_class=4, num_tokens=64, cost=THREE))
    return found


def test_the_parts_and_the_floor_add_up_to_the_step(comparison):
    found = anatomy(comparison)

    assert found.record.label == "eagle3 × extend", "the dearest backend of the best drafter"
    names = [p.name for p in found.parts if p.measured]
    assert names == [
        "calls, launches and gaps of an eager forward",
        "all-reduces with their residual add and norm apart",
    ]
    assert found.parts[0].ms == pytest.approx(20.0, rel=0.02)
    assert found.parts[1].ms == pytest.approx(3.0, abs=0.3)
    stays = in_order(found)[-1][1]
    assert sum(p.ms for p in found.parts) + stays == pytest.approx(found.step_ms)
    assert stays == pytest.approx(found.floor_ms, abs=0.6)


def test_steps_of_a_slower_hour_are_taken_off_each_other_as_the_baseline_beside_them_says(
    comparison,
):
    sweep = make_sweep(prompts_per_class=4, num_tokens=64, cost=THREE)
    best = comparison.best.cell_id
    for cell_id in ("eagle3-extend", "eagle3-graph_captured"):
        (later,) = compare(measured_later(sweep, cell_id, best, 2.0))
        found, still = anatomy(later), anatomy(comparison)
        scale = 2.0 if cell_id == "eagle3-extend" else 1.0
        assert [p.ms for p in found.parts] == pytest.approx([scale * p.ms for p in still.parts])
        levers = later.measurements["eagle3-extend"].overall.versus.levers
        assert found.accept_length * found.ms_per_token == pytest.approx(levers.needed_step_ms)
        assert "Cells were measured at different times" in "\n".join(
            plan_blocks(found, "t", "Next.", "p")
        )


def test_a_drafter_that_is_captured_with_the_verify_step_counts_in_the_same_change():
    eager = THREE | {("eagle3", "extend"): (14.0, 36.0)}
    (found,) = compare(make_sweep(prompts_per_class=4, num_tokens=64, cost=eager))
    plan = anatomy(found)

    captured = next(r for r in found.records if r.label == "eagle3 × graph_captured")
    step = found.measurements[captured.cell_id].overall.step_ms
    first, after = in_order(plan)[0]
    assert (
        first.name == "calls, launches and gaps of an eager forward; 11.0 ms of it while drafting"
    )
    assert after == pytest.approx(step), "what that cell measured"
    assert in_order(plan)[-1][1] == pytest.approx(plan.floor_ms, abs=0.6)


def test_what_a_capture_gains_by_another_all_reduce_is_not_called_launches(comparison):
    ways = {"extend": "gloo", "graph_captured": "shared_memory", "fused_allreduce": "fused"}
    records = tuple(
        replace(r, proof=replace(r.proof, allreduce=ways[r.params["verify"]]))
        for r in comparison.records
    )
    parts = [p for p in anatomy(replace(comparison, records=records)).parts if p.measured]
    assert [p.name for p in parts] == [
        "calls, launches and gaps of an eager forward, and all-reduces by gloo instead of"
        " shared_memory",
        "all-reduces with their residual add and norm apart",
    ]
    assert parts[1].proof.startswith("the report's all-reduces a step are fused ones")


def test_the_plan_orders_what_cells_show_by_gain_and_bounds_after_it(comparison):
    ordered = [part for part, _ in in_order(anatomy(comparison))]

    shown = [part.measured for part in ordered]
    assert shown == sorted(shown, reverse=True)
    for group in (True, False):
        times = [p.ms for p in ordered if p.measured is group]
        assert times == sorted(times, reverse=True)


def test_the_plan_names_the_command_the_proof_and_when_to_stop(comparison):
    text = "\n".join(plan_blocks(anatomy(comparison), "a target", "Next.", "waterfall.png"))

    assert "verify=graph_captured instead of extend** removes 20" in text
    assert "python -m pipeline drafter=eagle3 verify=graph_captured" in text
    assert "Verify: the report's share of captured steps is 1" in text
    assert "removes at most" in text
    assert "## When to stop" in text
    assert "brings the step under" in text


def test_a_breakdown_says_what_a_cheaper_backend_takes_away(comparison, tmp_path):
    dearest = anatomy(comparison).record
    parts = {"compute": 12.0, "wire": 2.0, "wait": 9.0, "launch": 13.0}
    cell = tmp_path / "cells" / dearest.cell_id
    cell.mkdir(parents=True)
    (cell / "breakdown.json").write_text(json.dumps(parts))

    list(sections(comparison, cell_names(comparison.records), tmp_path))
    text = (tmp_path / PLAN).read_text()

    assert "1. **verify=graph_captured instead of extend** removes 20" in text
    assert "Its breakdown: 13.0 ms idle between launches and 9.00 ms waiting for a late" in text


def test_alone_a_breakdown_that_the_engine_traced_tells_launches_and_waiting_apart(tmp_path):
    parts = {"compute": 12.0, "wire": 2.0, "wait": 9.0, "launch": 13.0}
    records = [
        replace(record, settings=record.settings | {"breakdown": json.dumps(parts)})
        for record in make_sweep(prompts_per_class=2, num_tokens=32, cost=ALONE)
    ]
    (alone,) = compare(records)

    list(sections(alone, cell_names(alone.records), tmp_path))
    text = (tmp_path / PLAN).read_text()

    assert "1. **capture the verify step in a graph** removes 13.0 ms" in text
    assert "2. **let all ranks start together" in text
    assert "removes at most 2.00 ms (the all-reduces' own floor)" in text


def test_a_trace_of_a_step_that_the_profiler_slowed_removes_no_more_than_the_step():
    (alone,) = compare(make_sweep(prompts_per_class=2, num_tokens=32, cost=ALONE))
    slowed = Breakdown(compute=12.0, wire=2.0, wait=90.0, launch=95.0)

    found = anatomy(alone, {"eagle3-extend": slowed})

    assert sum(part.ms for part in found.parts) == pytest.approx(found.step_ms - found.floor_ms)
    assert all(part.ms > 0 for part in found.parts)


def test_without_a_drafter_or_a_baseline_there_is_no_plan():
    plain, drafted = make_sweep(prompts_per_class=2, num_tokens=32)[1::2]

    assert anatomy(compare([plain])[0]) is None
    assert anatomy(compare([drafted])[0]) is None


def test_other_cells_of_the_sweep_are_levers_that_were_measured(comparison):
    (copy,) = [
        v
        for v in class_verdicts(comparison, cell_names(comparison.records))
        if v.category == "copy"
    ]

    assert copy.name == "eagle3 × fused_allreduce"
    assert copy.shown
    assert copy.verdict.situation.captured
    assert not [g for g in copy.verdict.gains if g.name.startswith("capture")]
    assert not [g for g in copy.verdict.gains if "instead" in g.name and g.factor.high < 1]


def test_a_class_is_judged_by_the_cell_that_is_shown_to_gain_as_in_the_first_lines():
    steady, lucky = make_sweep(3, 60)[1::2], make_sweep(3, 60)[3]
    copies = [r for r in lucky.repetitions[0] if r.category == "copy"]
    lone = min(copies, key=lambda r: r.decode_ms)  # one prompt, so without an interval
    lucky = replace(lucky, label="lucky × extend", cell_id="lucky", repetitions=((lone,),))
    (found,) = compare([*steady, lucky])
    names = cell_names(found.records)
    speed = {k: m.classes["copy"].speed_up for k, m in found.measurements.items()}
    assert speed["lucky"] > speed["ngram-graph_captured"]
    (copy,) = [v for v in class_verdicts(found, names) if v.category == "copy"]
    assert (copy.name, copy.shown) == ("ngram × graph_captured", True)


def test_the_sections_hold_verdict_pictures_and_plan(comparison, tmp_path):
    text = "\n\n".join(sections(comparison, cell_names(comparison.records), tmp_path, "1-"))

    assert text.startswith("## What to invest in")
    assert "## What to serve" in text
    assert "the command that serves this cell was not recorded" in text, "no name tells it"
    assert "## Known faults" in text
    for name in ("1-iso_speed.png", "1-waterfall.png", f"1-{PLAN}"):
        assert name in text
        assert (tmp_path / name).stat().st_size > 500


def test_the_break_even_plot_has_a_panel_per_class_and_a_mark_per_cell(comparison):
    figure = iso_speed(comparison)

    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == ["chat", "code", "copy", "math"]
    marks = [line for line in panels[0].lines if line.get_marker() in tuple("osD^vP")]
    assert len(marks) == 3


def test_a_cell_of_a_slower_hour_stands_at_its_speed_up_in_the_break_even_plot(comparison):
    sweep = make_sweep(prompts_per_class=4, num_tokens=64, cost=THREE)
    later = measured_later(sweep, "eagle3-graph_captured", comparison.best.cell_id, 2.0)
    panels = [iso_speed(found).axes[2].lines for found in (comparison, *compare(later))]
    first, again = ([float(x.get_xdata()[0]) for x in p if x.get_marker() == "o"] for p in panels)
    assert again == pytest.approx(first)


def test_heads_of_one_width_have_marks_of_their_own():
    sweep = make_sweep(prompts_per_class=2, num_tokens=48, cost=THREE)
    again = [
        replace(r, cell_id=f"{r.cell_id}-b", params=r.params | {"drafter.heads": "b"})
        for r in sweep
        if not r.is_baseline
    ]
    (found,) = compare([*sweep, *again])
    figure = iso_speed(found)
    assert {x.get_marker() for x in figure.axes[0].lines} >= {"o", "s"}
    key = [text.get_text() for text in figure.legends[0].get_texts()]
    assert key[1:3] == ["eagle3 (width 4)", "eagle3 (heads=b) (width 4)"]


def test_the_waterfall_ends_where_the_floor_is(comparison):
    found = anatomy(comparison)
    (axes,) = waterfall(found).axes

    bars = [patch.get_width() for patch in axes.patches]
    assert bars[0] == pytest.approx(found.step_ms)
    assert bars[-1] == pytest.approx(in_order(found)[-1][1])


def test_a_long_part_of_the_waterfall_is_wrapped_and_whole():
    eager = THREE | {("eagle3", "extend"): (14.0, 36.0)}
    (found,) = compare(make_sweep(prompts_per_class=2, num_tokens=48, cost=eager))
    plan = anatomy(found)
    (axes,) = waterfall(plan).axes
    rows = [tick.get_text() for tick in axes.get_yticklabels()]
    assert rows[1].replace("\n", " ") == plan.parts[0].name
    assert "while drafting" in rows[1]


def test_a_sweep_without_a_drafter_still_gets_its_known_faults(tmp_path):
    plain = make_sweep(prompts_per_class=2, num_tokens=32)[:2]
    (found,) = compare(plain)

    text = "\n".join(sections(found, cell_names(found.records), tmp_path))

    assert "host bound" in text
    assert not list(Path(tmp_path).glob("*.png"))


def test_the_command_line_reads_a_sweep_and_tells_its_decisions(tmp_path, capsys):
    records = make_sweep(prompts_per_class=2, num_tokens=32)
    folder = create_sweep(tmp_path, [r.cell_id for r in records], provenance={})
    for record in records:
        save_record(record, folder.cell(record.cell_id))
        for number, responses in enumerate(record.repetitions):
            save_repetition(responses, number, folder.cell(record.cell_id))

    assert main([f"sweep={folder.path}"]) == 0
    out = capsys.readouterr().out
    assert "- **Next:** " in out
    assert "## What each lever is worth" in out
    assert "## Known faults" in out
    assert main([f"sweep={folder.path}", "batch=2"]) == 2
