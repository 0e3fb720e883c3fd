"""The report says first what to do, keeps every figure's source, and stands any sweep."""

import contextlib
import re
from dataclasses import replace
from unittest.mock import patch

import pytest

from pipeline.judge.comparison import compare
from pipeline.measure.statistics import Interval
from pipeline.measure.wording import cell_names, times, with_interval
from pipeline.record.record import Loaded, Status, save_record, save_repetition
from pipeline.record.sweep_folder import create_sweep
from pipeline.report import terminal_table, write_report
from pipeline.report.__main__ import main
from pipeline.roi.__main__ import main as roi
from pipeline.track import TrackerAway
from pipeline.track.metrics import metrics
from tests.pipeline.synthetic import (
    COST,
    make_plain,
    make_record,
    make_sweep,
    measured_later,
    slower,
)

BACKENDS = ("extend", "graph_captured")
FACTS = {"commit": "0123abc", "cpu": "a CPU"}


def report(records, folder, plots=False):
    """Return the report's text; drawing takes most of the time, so only some tests do it."""
    drawing = [patch("pipeline.report.write.draw", return_value=[])]
    drawing += [patch("pipeline.report.write.sections", return_value=[])]
    with contextlib.ExitStack() as stack:
        for each in [] if plots else drawing:
            stack.enter_context(each)
        return write_report(records, folder, FACTS).read_text()


def behind(records, folder):
    """Return the text of the report's appendix."""
    report(records, folder)
    return (folder / "report-details.md").read_text()


def verdict_of(text):
    """Return the report's first three lines."""
    lines = text.splitlines()[:3]
    assert all(line.startswith("- ") for line in lines)
    return lines


def rows(text, heading):
    """Return the first table under a heading: cells of each row by the row's name."""
    lines = text.split(f"\n{heading}", 1)[1].splitlines()
    table = [line for line in lines if line.startswith("| ")]
    ends = next((i for i, line in enumerate(table[2:], 2) if line.startswith("| cell")), None)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:ends]]
    return {row[0]: row[1:] for row in cells}


def test_the_first_three_lines_say_where_it_pays_where_not_and_what_next(tmp_path):
    gains, gaps, after = verdict_of(report(make_sweep(), tmp_path))
    assert gains.startswith(
        "- **On copy, ngram × graph_captured is 1.88x (1.67–2.14) the best baseline"
        " (none × graph_captured, 84.7 tok/s).**"
    )
    assert gains.endswith("On code it is 1.14x (1.01–1.30).")
    assert gaps.startswith("- **Not shown to gain, at best:** chat 0.95x")
    assert "; math 1.05x (1.00–1.11), undecided, with ngram × graph_captured (accept" in gaps
    assert after.endswith("More prompts would decide on math.")
    assert (
        " chat 0.95x (0.91–1.00) with ngram × graph_captured (accept length 1.35, break-even 1.42,"
        " 0.07 short);"
    ) in gaps
    assert after.startswith(
        "- **Next, on chat:** a trained drafter as published: 95.3–183 tok/s (1.12–2.16x the"
        " baseline). To break even, cut the step from 16.7 to 15.9 ms (−5 %) at this accept length,"
        " or raise accept length from 1.35 to 1.42 (+5 %) at this step cost."
    )


def test_every_figure_of_the_tables_is_the_one_that_is_tracked(tmp_path):
    sweep = make_sweep()
    text = behind(sweep, tmp_path)
    (comparison,) = compare(sweep)
    names = cell_names(sweep)
    for cell_id, measurement in comparison.measurements.items():
        flat = metrics(measurement)
        for heading, suffix in [
            ("### chat (6 prompts)", "/chat"),
            ("### code (6 prompts)", "/code"),
            ("### copy (6 prompts)", "/copy"),
            ("### math (6 prompts)", "/math"),
            ("### All classes together", ""),
        ]:

            def interval(name, flat=flat, suffix=suffix):
                ends = (flat[f"{key}{suffix}"] for key in (name, f"{name}_low", f"{name}_high"))
                return Interval(*ends)

            found = rows(text, heading)
            row = next(row for name, row in found.items() if name.startswith(names[cell_id]))
            assert row[:3] == [
                with_interval(interval("tok_s")),
                times(interval("speed_up")),
                with_interval(interval("accept_length")),
            ]
            if not measurement.is_baseline:
                expected = [flat[f"break_even{suffix}"], flat[f"break_even_floor{suffix}"]]
                assert row[3:5] == [f"{value:.2f}" for value in expected]


def test_no_drafter_that_pays_is_said_first(tmp_path):
    gains, gaps, after = verdict_of(report([make_sweep()[i] for i in (0, 1, 2)], tmp_path))
    assert "On no class is a drafter shown to beat the best baseline" in gains
    assert gaps.count(" short)") == 4
    assert (
        "**Next, on chat:** verify as cheap as a plain forward, a bound, but the only lever that"
        " could close the gap alone: at most"
    ) in after
    assert "To settle it, run a verify step of this width under every verify backend" in after


def test_a_cell_shown_to_gain_stands_for_its_class_before_a_faster_one_that_is_not(tmp_path):
    steady, lucky = make_sweep(3, 60)[1::2], make_sweep(3, 60)[3]
    copies = [r for r in lucky.repetitions[0] if r.category == "copy"]
    lone = min(copies, key=lambda r: r.decode_ms)  # one prompt, so without an interval
    lucky = replace(lucky, label="lucky × extend", cell_id="lucky", repetitions=((lone,),))
    (comparison,) = compare([*steady, lucky])
    found = {k: m.classes["copy"].versus.speed_up for k, m in comparison.measurements.items()}
    assert found["lucky"].value > found["ngram-graph_captured"].value
    gains, *_ = verdict_of(report([*steady, lucky], tmp_path))
    assert "On copy, ngram × graph_captured is" in gains


def test_a_cell_that_may_have_been_the_best_is_missed_in_the_first_line(tmp_path):
    sweep = make_sweep(2, 40)
    sweep[2] = replace(sweep[2], repetitions=()).ended(Status.FAILED, "out of memory")
    gains, *_ = verdict_of(report(sweep, tmp_path))
    assert "No result from 1 of 4 cells: ngram × extend (failed)." in gains
    more = [replace(sweep[2], cell_id=str(i), label=f"cell {i}") for i in range(4)]
    gains, *_ = verdict_of(report([*sweep, *more], tmp_path))
    assert "No result from 5 of 8 cells." in gains


def test_repetitions_that_scatter_are_said_in_the_first_line(tmp_path):
    steady = make_sweep()
    first, second, third = (slower(steady[1], factor).repetitions[0] for factor in (1.0, 1.3, 1.1))
    uneven = replace(steady[1], repetitions=(first, second, third))
    gains, *_ = verdict_of(report([steady[0], uneven, *steady[2:]], tmp_path))
    said = r"Repetitions scatter, most those of none × graph_captured \(±3\d\.\d % in tok/s\)"
    assert re.search(said, gains)
    assert "scatter" not in report(steady, tmp_path)


@pytest.mark.parametrize(("factor", "warned"), [(1.05, False), (1.3, True)])
def test_two_repetitions_far_apart_are_said_in_the_first_line(tmp_path, factor, warned):
    steady = make_sweep(repetitions=2)
    first, second = (slower(steady[1], each).repetitions[0] for each in (1.0, factor))
    uneven = [steady[0], replace(steady[1], repetitions=(first, second)), *steady[2:]]
    gains, *_ = verdict_of(report(uneven, tmp_path))
    said = r"most those of none × graph_captured \(2 repetitions 2\d\.\d % apart in tok/s\)"
    assert bool(re.search(said, gains)) == warned


def test_cells_that_ran_once_are_counted_for_their_noise_is_unknown(tmp_path):
    steady = make_sweep()
    once = replace(steady[3], repetitions=steady[3].repetitions[:1])
    assert "Measured only once" not in report(steady, tmp_path)
    assert "**Measured only once:** 1 of the cells" in report([*steady[:3], once], tmp_path)


def test_a_machine_that_nobody_watched_is_not_called_quiet(tmp_path):
    unseen = [
        replace(
            r,
            repetitions=tuple(
                tuple(replace(each, others_cpu=-1) for each in responses)
                for responses in r.repetitions
            ),
        )
        for r in make_sweep(2, 40)
    ]
    assert "- How busy the machine was is not known.\n" in report(unseen, tmp_path)
    assert "- Quiet: others used at most" in report(make_sweep(2, 40), tmp_path)


def test_an_accept_length_that_all_cells_hold_is_said_once(tmp_path):
    held = [
        replace(
            r,
            label=r.label if r.is_baseline else f"{r.label} (accept length held at 2)",
            params=r.params | {"sampling.held_accept_length": "2.0"},
        )
        for r in make_sweep()
    ]
    text = report(held, tmp_path)
    said = "Accept length was held at 2: times are real, texts and acceptance are not."
    assert said in verdict_of(text)[0]
    assert text.count("held at 2") == 1
    assert terminal_table(held).count("held at 2") == 1


def test_cells_of_a_slower_hour_are_told_beside_their_speed(tmp_path):
    later = measured_later(make_sweep(), "ngram-graph_captured", "none-graph_captured", 2.0)
    said = (
        "ngram × graph_captured came later and took turns with none × graph_captured measured"
        " again: 42.4 tok/s then, 84.7 at first."
    )
    assert said in report(later, tmp_path).split("\n## ")[0]
    assert said in terminal_table(later)
    cells = list(rows(behind(later, tmp_path), "### copy (6 prompts)"))
    assert cells[:2] == ["ngram × graph_captured", "none × graph_captured (best baseline)"]


def test_a_fourth_line_says_which_lever_moved_speed_and_by_what(tmp_path):
    sweep = make_sweep()
    line = report(sweep, tmp_path).splitlines()[3]
    (comparison,) = compare(sweep)
    eager, captured = (comparison.measurements[f"ngram-{v}"].overall for v in BACKENDS)
    factor = captured.speed_up / eager.speed_up
    assert line.startswith(
        "- **Here the verify step moved speed more than the drafter:** over all classes,"
        f" ngram × graph_captured instead of ngram × extend is {factor:.2f} times as fast"
        f" ({eager.speed_up:.2f}x → {captured.speed_up:.2f}x the best baseline: a step commits"
        f" still {captured.accept_length.value:.2f} tokens and costs the time of"
        f" {eager.versus.levers.break_even:.2f} → {captured.versus.levers.break_even:.2f} plain"
    )
    assert "instead of none × graph_captured is 1.17 times as fast (1.00x → 1.17x" in line


def test_a_drafter_that_moved_more_is_named_first(tmp_path):
    near = {**COST, ("none", "extend"): (0.0, 11.6), ("ngram", "extend"): (0.1, 16.3)}
    line = report(make_sweep(cost=near), tmp_path).splitlines()[3]
    assert line.startswith("- **Here the drafter moved speed more than the verify step:**")


def test_a_grid_with_one_backend_does_not_weigh_levers(tmp_path):
    assert "moved speed" not in report(make_sweep()[1::2], tmp_path)


def test_everything_that_pays_leaves_only_the_limits_to_say(tmp_path):
    cost = {("none", "extend"): (0, 38.0), ("ngram", "extend"): (0.1, 38.0)}
    _, gaps, after = verdict_of(report(make_sweep(cost=cost), tmp_path))
    assert gaps == "- Every class gains: accept length is above break-even on all of them."
    assert after.startswith("- **Next, on chat:** ")
    assert "No class is below break-even. At most, a verify" in after


def test_without_a_baseline_no_speed_up_is_stated(tmp_path):
    text = report(make_sweep()[2:], tmp_path)
    first, second, after = verdict_of(text)
    assert "There is no baseline" in first
    assert "The fastest cell is ngram × graph_captured with 99.4" in second
    assert "drafter=none" in after
    assert re.search(r"\d\.\d\dx", text) is None


def test_plain_decode_only_says_what_a_drafter_would_have_to_beat(tmp_path):
    first, second, after = verdict_of(report(make_sweep()[:2], tmp_path))
    assert "the fastest is none × graph_captured with 84.7" in first
    assert "none × extend is 0.31x" in second
    assert "over 11.8 ms" in after


def test_one_cell_is_a_report(tmp_path):
    one = make_record("none", "extend", [make_plain()])
    first, second, _ = verdict_of(report([one], tmp_path))
    assert "Plain decode only" in first
    assert second == "- It is the only cell with a result."


def test_a_sweep_in_which_every_cell_failed_says_why(tmp_path):
    failed = [
        replace(r, repetitions=(), proof=None, seconds={}).ended(
            Status.FAILED, "the worker was killed (signal 9)"
        )
        for r in make_sweep(1, 40)
    ]
    failed[0] = replace(failed[0], log_tail="line 1\nlast words")
    text = report(failed, tmp_path, plots=True)
    first, second, _ = verdict_of(text)
    assert first == "- **No cell gave a result:** 4 failed."
    assert second == "- The first, none × extend, is failed: the worker was killed (signal 9)."
    assert "last words" in text
    assert ".png" not in text
    assert "trusted" not in text, "there was nothing to look at"
    assert "## What ran\n\nNothing: no cell came so far." in text
    assert text.count("last words") == 1
    details = (tmp_path / "report-details.md").read_text()
    assert details.split("## How long it took\n\n")[1].startswith("Nothing ran.\n")
    assert terminal_table(failed).count("FAILED") == 4


def test_cells_without_a_result_are_listed_and_the_others_compared(tmp_path):
    sweep = make_sweep()
    sweep[0] = replace(sweep[0], repetitions=()).ended(Status.SKIPPED, "needs tp of 2 or more")
    sweep[2] = sweep[2].ended(Status.VOID, "graph share is 1.00, must be 0")
    text = report(sweep, tmp_path)
    assert "On copy, ngram × graph_captured is 1.88x" in verdict_of(text)[0]
    assert "\n- 2 of 4 cells gave a result.\n" in text
    assert "- **skipped**: none × extend: needs tp of 2 or more" in text
    assert "- **void**: ngram × extend: graph share is 1.00, must be 0" in text


def test_looping_prompts_noise_and_divergences_are_told(tmp_path):
    sweep = make_sweep(4, 40)
    loud = []
    for record in sweep:
        repetitions = tuple(
            tuple(
                replace(
                    r, others_cpu=0.4, tokens=(7,) * 40 if r.prompt_id == "copy-1" else r.tokens
                )
                for r in each
            )
            for each in record.repetitions
        )
        loud.append(replace(record, repetitions=repetitions))
    text, details = report(loud, tmp_path), behind(loud, tmp_path)
    assert "since a loop flatters any drafter: copy-1." in text
    assert rows(details, "## Looping responses")["ngram × extend"] == ["6 %"]
    assert "### copy (3 prompts)" in details
    assert rows(details, "## How quiet")["none × extend"][1] == "**yes**"
    assert "all 48 responses are, token by token, those of none × graph_captured" in details
    assert "Measured on a busy machine, so measure again: none × extend" in verdict_of(text)[0]
    assert "\n- Busy machine: none × extend, " in text


def test_what_ran_is_said_and_the_appendix_ends_with_phases_provenance_and_commands(tmp_path):
    (proven,) = rows(report(make_sweep(2, 40), tmp_path), "## What ran")
    assert proven.split(", ")[0] == "none × extend", "once for all that proved the same"
    text = (tmp_path / "report-details.md").read_text()
    assert "| cell | start, s | warm up, s | measure, s | orchestrate, s |" in text
    assert "| commit | 0123abc |" in text
    assert "| dtype | float32 |" in text
    assert "python -m pipeline drafter=ngram verify=graph_captured\n" in text
    assert "precise: ±1.4 % of tok/s after 3 repetitions" in text


def test_remote_code_is_never_on_in_silence(tmp_path):
    (record, *_) = make_sweep(2, 40)
    params = record.params | {"target.trust_remote_code": "True"}
    assert "trust_remote_code` was on** in none × extend" in (
        report([replace(record, params=params)], tmp_path)
    )


def test_several_comparisons_each_get_a_verdict_a_title_and_their_own_plots(tmp_path):
    first = make_sweep(2, 40)
    second = [
        replace(
            record,
            comparison="other",
            cell_id=f"{record.cell_id}-b",
            params=record.params | {"sampling.temperature": "1.0"},
        )
        for record in first
    ]
    first = [replace(r, params=r.params | {"sampling.temperature": "0.0"}) for r in first]
    with patch("pipeline.report.write.draw", lambda *given: [(f"{given[-1]}speed.png", "speed")]):
        text = write_report([*first, *second], tmp_path, FACTS).read_text()
    assert "# SmolLM2-135M-Instruct · torch · embedded (temperature=0.0)\n" in text
    assert "# SmolLM2-135M-Instruct · torch · embedded (temperature=1.0)\n" in text
    assert "- SmolLM2-135M-Instruct · torch · embedded (temperature=0.0): **On" in text
    assert "](1-speed.png)" in text
    assert "](2-speed.png)" in text


def test_cells_of_one_label_are_told_apart_by_what_differs(tmp_path):
    base = make_record("ngram", "extend").params
    records = [
        make_record("ngram", "extend", cell_id=k, params=base | {"drafter.num_draft_tokens": k})
        for k in ("3", "7")
    ]
    assert cell_names(records) == {
        "3": "ngram × extend (num_draft_tokens=3)",
        "7": "ngram × extend (num_draft_tokens=7)",
    }


def test_the_page_shows_the_report_with_its_pictures_inside_it(tmp_path):
    report(make_sweep(), tmp_path, plots=True)
    page = (tmp_path / "report.html").read_text()
    assert page.count('<img src="data:image/png;base64,') == 6
    assert page.count("<img ") == 6
    assert "<strong>On copy, ngram × graph_captured is" in page
    assert '<th style="text-align:right">break-even</th>' in page


def test_what_a_log_says_is_shown_on_the_page_and_not_obeyed(tmp_path):
    failed = make_sweep(1, 40)[0].ended(Status.FAILED, "<script>alert(1)</script> ![x](y.png)")
    report([replace(failed, repetitions=(), log_tail="<b>last words</b>")], tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;last words" in page


def test_of_a_long_setting_the_end_tells_cells_apart_or_else_all_of_it():
    cell = make_sweep(1, 40)[3]

    def named(*values):
        cells = [
            replace(cell, cell_id=str(i), params=cell.params | {"drafter.heads": value})
            for i, value in enumerate(values)
        ]
        return list(cell_names(cells).values())

    folder = "/home/someone/checkpoints/"
    first, _ = named(f"{folder}eagle3-run-1", f"{folder}eagle3-run-2")
    assert first == "ngram × graph_captured (heads=…ne/checkpoints/eagle3-run-1)"
    long = "0" * 30
    first, _ = named(f"a{long}", f"b{long}")
    assert first == f"ngram × graph_captured (heads=a{long})"


def test_no_cell_at_all_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a report needs at least one cell"):
        write_report([], tmp_path, FACTS)


def test_the_terminal_table_has_a_line_a_cell_and_fits_a_terminal():
    lines = terminal_table(make_sweep()).splitlines()
    assert lines[1].split() == ["chat", "code", "copy", "math", "all", "accept", "needed"]
    assert lines[5].split()[3:] == [
        *("80.9", "0.95x", "96.6", "1.14x", "160", "1.88x", "88.9", "1.05x", "99.4", "1.17x"),
        *("1.66", "1.41"),
    ]
    assert max(map(len, lines[1:6])) <= 100
    assert lines[7].startswith("On copy, ngram × graph_captured is 1.88x")


def save(sweep, runs):
    folder = create_sweep(runs, [r.cell_id for r in sweep], provenance=FACTS)
    for record in sweep:
        save_record(record, folder.cell(record.cell_id))
        for number, responses in enumerate(record.repetitions):
            save_repetition(responses, number, folder.cell(record.cell_id))
    return folder


def test_a_report_written_again_from_the_folder_is_the_same(tmp_path, capsys, monkeypatch):
    sweep = make_sweep(2, 40, cost=dict(list(COST.items())[1:]))
    folder = save(sweep, tmp_path)
    text = report(sweep, tmp_path / "live")
    monkeypatch.setattr("pipeline.report.write.draw", lambda *_: [])
    monkeypatch.setattr("pipeline.report.write.sections", lambda *_: [])
    assert main([f"sweep={folder.path}"]) == 0
    assert (folder.path / "report.md").read_text() == text
    (folder.path / "report.md").unlink()
    assert main([f"sweep={folder.sweep_id}", f"runs={tmp_path}"]) == 0
    assert (folder.path / "report.md").read_text() == text
    assert "report: " in capsys.readouterr().out


def test_a_damaged_cell_is_listed_with_its_file_and_costs_no_other(tmp_path, capsys, monkeypatch):
    folder = save(make_sweep(2, 40), tmp_path)
    monkeypatch.setattr("pipeline.report.write.draw", lambda *_: [])
    monkeypatch.setattr("pipeline.report.write.sections", lambda *_: [])
    path = folder.cell("ngram-extend") / "repetition_001.jsonl"
    path.write_text(path.read_text()[:-9])
    assert main([f"sweep={folder.path}"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith(f"left out: {path}: line 8: Invalid JSON: EOF")
    assert len(said.err.splitlines()) == 1
    assert "ngram × graph_captured" in said.out
    assert f"- **damaged**: {path}: line 8: " in (folder.path / "report.md").read_text()


def test_a_sweep_that_cannot_be_read_at_all_is_refused_in_a_line(tmp_path, capsys):
    folder = save(make_sweep(1, 20)[:1], tmp_path)
    (record,) = folder.path.glob("cells/*/record.json")
    record.write_text("")
    assert main([f"sweep={folder.path}"]) == 2
    assert capsys.readouterr().err.startswith(f"{record}: is empty; delete {record.parent} and")
    (folder.path / "sweep.json").write_text("{}")
    for ask in (main, roi):
        assert ask([f"sweep={folder.path}"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"{folder.path / 'sweep.json'}: cell_ids is missing; put a copy")
        assert len(said.splitlines()) == 1


def test_without_the_folder_the_report_is_written_from_tracking(tmp_path, capsys, monkeypatch):
    sweep = make_sweep(2, 40)
    monkeypatch.setattr("pipeline.report.write.draw", lambda *_: [])
    monkeypatch.setattr("pipeline.report.write.sections", lambda *_: [])
    with patch("pipeline.report.__main__.load", return_value=Loaded(sweep, [])) as load:
        assert main(["sweep=ID", f"runs={tmp_path}", "tracking.uri=http://user:secret@host"]) == 0
    load.assert_called_once_with("http://user:secret@host", "ID")
    text = (tmp_path / "reports" / "ID" / "report.md").read_text()
    assert verdict_of(text) == verdict_of(report(sweep, tmp_path))
    assert "secret" not in text + capsys.readouterr().out


def test_a_tracking_server_that_is_away_gets_one_clear_line(capsys):
    with patch("pipeline.report.__main__.load", side_effect=TrackerAway("no answer")):
        assert main(["sweep=ID", "tracking.uri=http://host"]) == 2
    assert capsys.readouterr().err == "no answer\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "sweep is missing"),
        (["sweeps=x"], "sweeps=x: give sweep=…, runs=…, tracking.uri=…"),
        (["sweep"], "sweep: give sweep=…"),
        (["sweep=nothing", "runs=none"], "sweep=nothing: no such folder, and there is no store"),
    ],
)
def test_wrong_arguments_get_one_clear_line(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_stand_in_is_named(tmp_path):
    plain, *others = make_sweep()
    note = "aq_medai_k2 on smollm2_135m drafts with a stand-in"
    noted = replace(others[0], params=others[0].params | {"drafter.note": note})
    text = report([plain, noted, *others[1:]], tmp_path)
    assert text.count("**aq_medai_k2 on smollm2_135m drafts with a stand-in.**") == 1
    assert f"{note}." in terminal_table([plain, noted, *others[1:]])
