"""The plots draw what was measured, whatever part of a sweep there is."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest

from pipeline.judge.comparison import compare
from pipeline.measure.wording import cell_names
from pipeline.report.plots.by_cell import accept_rate, break_even, distinct, draw, speed, step
from tests.pipeline.synthetic import (
    make_plain,
    make_record,
    make_response,
    make_sweep,
    measured_later,
)


def cells_of(sweep):
    (comparison,) = compare(sweep)
    names = cell_names(comparison.records)
    return [(names[key], m) for key, m in comparison.measurements.items()]


def texts(axes):
    return [text.get_text() for text in axes.texts]


def files(sweep, folder):
    (comparison,) = compare(sweep)
    return [name for name, _ in draw(comparison, cell_names(comparison.records), folder)]


def test_a_sweep_gives_four_pictures(tmp_path):
    found = files(make_sweep(2, 40), tmp_path)
    assert found == ["speed.png", "break_even.png", "step.png", "accept_rate.png"]
    for name in found:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_every_class_has_a_panel_and_every_bar_its_numbers():
    cells = cells_of(make_sweep(2, 40))
    figure = speed(cells)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == ["chat", "code", "copy", "math"]
    for axes in shown:
        assert len(texts(axes)) == 4
        assert texts(axes)[1].endswith("1.00x")


def test_each_bar_stands_beside_the_baseline_of_its_own_turns():
    sweep = make_sweep(2, 40)
    later = measured_later(sweep, "ngram-graph_captured", "none-graph_captured", 2.0)
    cells = cells_of(later)
    lines = [line for line in speed(cells).axes[2].lines if len(set(line.get_xdata())) == 1]
    marks = [line.get_xdata()[0] for line in lines]
    expected = [m.classes["copy"].versus.baseline_tok_s for _, m in cells]
    assert marks == expected
    assert marks[3] == pytest.approx(marks[0] / 2)
    bar = speed(cells).axes[2].patches[3].get_width()
    assert bar / marks[3] == pytest.approx(cells[3][1].classes["copy"].speed_up)


def test_a_long_name_leaves_room_for_the_data():
    (name, cell), *_ = cells_of(make_sweep(2, 40))
    figure = speed([(f"{name} (heads={'long/' * 30}v2, num_draft_tokens=3)", cell)])
    (tick,) = figure.axes[0].get_yticklabels()
    first, second = tick.get_text().split("\n")
    assert first == name
    assert len(second) < 50
    assert second.startswith("(heads=long/")
    assert second.endswith("num_draft_tokens=3)")


def test_accept_length_is_written_beside_break_even():
    cells = [c for c in cells_of(make_sweep(2, 40)) if not c[1].is_baseline]
    levers = cells[1][1].classes["copy"].versus.levers
    written = texts(break_even(cells).axes[2])[1]
    assert written == f"{levers.accept_length:.2f} of {levers.break_even:.2f}"


def test_a_steps_parts_are_stacked_to_its_whole():
    cells = cells_of(make_sweep(2, 40))
    axes = step(cells).axes[0]
    bars = axes.patches[-3:]  # the last cell's
    assert sum(bar.get_width() for bar in bars) == cells[-1][1].overall.step_ms


def test_lines_end_with_their_class_and_names_never_overlap():
    (_, cell), *_ = [c for c in cells_of(make_sweep(2, 40)) if not c[1].is_baseline]
    (axes,) = accept_rate([("ngram", cell)]).axes
    assert sorted(texts(axes)) == ["chat", "code", "copy", "math"]
    heights = sorted(text.xyann[1] + text.xy[1] for text in axes.texts)
    assert all(above - below > 0.08 for below, above in pairwise(heights))


def test_cells_that_accept_alike_share_a_panel():
    extend, captured = (c for c in cells_of(make_sweep(2, 40)) if not c[1].is_baseline)
    assert distinct([extend]) == [extend]
    ((name, shown),) = distinct([extend, captured])
    assert (name, shown) == ("ngram × extend and 1 alike", extend[1])


def test_cells_that_repeated_more_often_still_accept_alike():
    sweep = make_sweep(2, 40)
    sweep[3] = replace(sweep[3], repetitions=sweep[3].repetitions[:1])
    assert len(distinct([c for c in cells_of(sweep) if not c[1].is_baseline])) == 1


def test_a_class_is_named_where_its_line_ends():
    chat = make_response("chat-0", "chat", [1, 2, 1])
    copy = make_response("copy-0", "copy", [4, 4, 1])
    cells = cells_of([make_record("ngram", "extend", [chat, copy])])
    (axes,) = accept_rate(cells).axes
    ends = {text.get_text(): text.xy[0] for text in axes.texts}
    assert ends == {"chat": 2, "copy": 3}


def test_a_sweep_without_baseline_draws_no_break_even(tmp_path):
    assert files(make_sweep(2, 40)[2:], tmp_path) == ["speed.png", "step.png", "accept_rate.png"]


def test_a_sweep_of_plain_decode_draws_no_drafts(tmp_path):
    assert files(make_sweep(2, 40)[:2], tmp_path) == ["speed.png", "step.png"]


def test_one_prompt_one_class_one_cell_is_drawn_without_an_interval(tmp_path):
    one = make_record("ngram", "extend", [make_response(committed=[2, 1, 1])])
    assert files([one], tmp_path) == ["speed.png", "step.png", "accept_rate.png"]


def test_a_class_that_a_cell_lacks_leaves_its_row_empty():
    first, second = make_sweep(2, 40)[:2]
    one_class = tuple(r for r in second.repetitions[0] if r.category == "chat")
    cells = cells_of([first, replace(second, repetitions=(one_class,))])
    assert [len(texts(axes)) for axes in speed(cells).axes] == [2, 1, 1, 1]


def test_a_prefix_tells_the_plots_of_comparisons_apart(tmp_path):
    (comparison,) = compare([make_record("none", "extend", [make_plain()])])
    drawn = draw(comparison, cell_names(comparison.records), tmp_path, "2-")
    assert [name for name, _ in drawn] == ["2-speed.png", "2-step.png"]
    assert (tmp_path / "2-step.png").exists()


def test_without_any_measurement_nothing_is_written(tmp_path):
    (comparison,) = compare([make_record("ngram", "extend")])
    assert list(draw(comparison, {}, tmp_path / "new")) == []
    assert not (tmp_path / "new").exists()


def test_the_drawing_library_is_loaded_only_to_draw():
    code = "import sys, pipeline.report.plots.by_cell; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
