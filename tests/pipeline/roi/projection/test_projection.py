"""A cell that was not run is predicted from those that were, with an interval that holds."""

import itertools
import math
import random

import pytest

from experiments.projection.hold_out import hold_out
from experiments.projection.surface import Point, fit
from pipeline.judge.comparison import compare
from pipeline.report.investment import projection_section
from pipeline.roi.levers.accept_length import accept_length_of, best_width, cut, reach
from pipeline.roi.projection.costs import Place, Timed, costs, width_curve
from pipeline.roi.projection.predict import curves, missing, project, summarise
from tests.pipeline.synthetic import make_sweep, measured_later

DRAFTERS = {"none": 1.0, "eagle3": 1.7, "ngram": 1.5, "tree": 1.9}
BACKENDS = {"extend": 3.0, "graph": 1.0, "fused": 0.9}
CLASSES = {"chat": 1.0, "code": 1.05, "copy": 1.12}


def grid(noise=0.01):
    """Return cells whose cost is a product of effects, each measured with 1 % noise."""
    generator = random.Random(7)
    cells = list(itertools.product(DRAFTERS, BACKENDS, CLASSES))
    points = [Point(cell) for cell in cells]
    values = [
        10 * DRAFTERS[d] * BACKENDS[b] * CLASSES[c] * math.exp(generator.gauss(0, noise))
        for d, b, c in cells
    ]
    return points, values


def test_a_hidden_cell_of_a_product_of_effects_is_found_within_its_noise():
    points, values = grid()

    errors = summarise(list(hold_out(points, values, range(len(points)))))

    assert errors.median < 0.015
    assert errors.p90 < 0.03
    assert errors.covered > 0.85


def test_a_whole_drafter_on_one_backend_is_found_from_the_other_backends():
    points, values = grid()
    groups = [(p.levels[0], p.levels[1]) for p in points]

    assert summarise(list(hold_out(points, values, groups))).median < 0.02


def test_a_drafter_never_seen_is_answered_with_a_wide_interval():
    points, values = grid()
    fitted = fit(points, values)

    seen = fitted.at(Point(("eagle3", "graph", "chat")))
    unseen = fitted.at(Point(("medusa", "graph", "chat")))

    assert unseen.high / unseen.low > 2 * seen.high / seen.low
    assert seen.low < 17 < seen.high


def test_a_pair_that_was_never_run_together_widens_the_interval():
    points, values = grid()
    kept = [i for i, p in enumerate(points) if p.levels[:2] != ("ngram", "fused")]
    fitted = fit([points[i] for i in kept], [values[i] for i in kept], ((0, 1),))

    apart = fitted.at(Point(("ngram", "fused", "chat")))
    together = fitted.at(Point(("ngram", "graph", "chat")))

    assert apart.high / apart.low > together.high / together.low


@pytest.mark.parametrize(
    ("points", "values", "message"),
    [
        ([Point(("a",)), Point(("b",))], [1.0, 2.0], "2 measured cells: a projection needs 3"),
        ([Point(("a",))] * 3, [1.0, 0.0, 2.0], "cost must be more than 0"),
    ],
)
def test_too_few_or_impossible_cells_are_refused(points, values, message):
    with pytest.raises(ValueError, match=message):
        fit(points, values)


def test_accept_length_follows_from_the_rates_of_its_positions():
    assert accept_length_of((0.5, 0.5, 0.5), 4) == 1 + 0.5 + 0.25 + 0.125
    assert accept_length_of((0.5, 0.5, 0.5), 1) == 1
    with pytest.raises(ValueError, match="width 5 needs 4 accept rates; 3 are known"):
        accept_length_of((0.5, 0.5, 0.5), 5)


def test_a_narrower_width_is_cut_from_the_histogram_and_a_wider_one_is_a_range():
    histogram = (50, 25, 25)  # steps that committed 1, 2 and 3 tokens

    assert cut(histogram, 3) == 1.75
    assert cut(histogram, 2) == 1.5
    assert (reach(histogram, 2).low, reach(histogram, 2).high) == (1.5, 1.5)
    wider = reach(histogram, 4)
    assert wider.low == 1.75
    assert wider.high == pytest.approx(1.75 + 0.25 * 0.5)  # half of those at depth 2 accepted


def test_the_best_width_is_where_the_next_token_costs_more_than_it_brings():
    assert best_width((0.9, 0.9, 0.9), plain_ms=10, row_ms=0.1, draft_ms=0.1) == 4
    assert best_width((0.9, 0.1, 0.1), plain_ms=10, row_ms=2, draft_ms=1) == 2
    assert best_width((0.1, 0.1, 0.1), plain_ms=10, row_ms=2, draft_ms=1) == 1


def without(cost, drafter, verify):
    """Return a sweep's cells without one of them, and that one on the class `copy`."""
    records = make_sweep(prompts_per_class=3, num_tokens=48, cost=cost)
    found = costs(compare([r for r in records if r.cell_id != f"{drafter}-{verify}"]))
    (load,) = {c.place.load for c in found}
    place = Place(drafter, verify, 4, "copy", load)
    (hidden,) = [c for c in costs(compare(records)) if c.place == place]
    return found, hidden


def test_a_hole_in_a_sweep_is_projected_near_what_was_hidden():
    cost = {
        (drafter, verify): (draft, times * rows)
        for drafter, draft, rows in (("none", 0, 1.0), ("ngram", 0.1, 1.4), ("eagle", 2.0, 1.4))
        for verify, times in (("extend", 30.0), ("graph_captured", 12.0))
    }
    found, hidden = without(cost, "ngram", "extend")

    projection = project(found, curves(found), hidden.place)

    assert projection.tok_s.value == pytest.approx(hidden.figures.tok_s.value, rel=0.03)
    assert projection.tok_s.low < hidden.figures.tok_s.value < projection.tok_s.high
    assert {p.drafter for p in missing(found)} == {"ngram"}


def test_cells_of_a_slower_hour_are_projected_from_as_the_baseline_first_was():
    sweep = make_sweep(prompts_per_class=2, num_tokens=48)
    later = measured_later(sweep, "ngram-extend", "none-graph_captured", 2.0)
    still, again = (costs(compare(records)) for records in (sweep, later))
    assert [c.figures.step_ms for c in again] == pytest.approx([c.figures.step_ms for c in still])
    for a, b in zip(again, still, strict=True):
        assert tuple(a.figures.tok_s) == pytest.approx(tuple(b.figures.tok_s))


def test_a_drafter_that_is_captured_with_verify_is_projected_as_its_like_was():
    cost = {
        ("none", "extend"): (0, 30.0),
        ("none", "graph_captured"): (0, 12.0),
        ("ngram", "extend"): (0.1, 42.0),
        ("ngram", "graph_captured"): (0.1, 17.0),
        ("eagle", "extend"): (12.0, 42.0),
        ("eagle", "graph_captured"): (2.0, 17.0),
        ("other_eagle", "extend"): (13.2, 42.0),
        ("other_eagle", "graph_captured"): (2.2, 17.0),
    }
    found, hidden = without(cost, "eagle", "graph_captured")

    projection = project(found, curves(found), hidden.place)

    assert projection.tok_s.value == pytest.approx(hidden.figures.tok_s.value, rel=0.03)


def test_the_report_says_how_far_off_hidden_cells_are_and_that_the_grid_is_whole():
    comparisons = compare(make_sweep(prompts_per_class=2, num_tokens=32))

    text = "\n".join(projection_section(comparisons))

    assert "median error" in text
    assert "The grid has no gap" in text


def test_a_drafter_without_a_measured_accept_length_is_not_projected():
    found = costs(compare(make_sweep(prompts_per_class=2, num_tokens=32)))
    (load,) = {c.place.load for c in found}

    assert project(found, curves(found), Place("eagle3", "extend", 4, "chat", load)) is None


def line(rows, category, factor=1.0):
    """Return a forward of 8 ms and 2 ms a row."""
    return Timed(rows, category, factor * (8 + 2 * rows))


def test_a_width_between_and_beyond_the_measured_ones_lies_on_their_line():
    curve = width_curve([line(1, "chat"), line(8, "chat"), line(1, "copy"), line(8, "copy")])

    assert curve.at(4, "chat").value == pytest.approx(16)
    assert curve.at(12, "copy").value == pytest.approx(32)
    inside, beyond = curve.at(4, "chat"), curve.at(12, "chat")
    assert beyond.high / beyond.low > inside.high / inside.low


def test_a_class_with_a_longer_context_costs_its_factor_at_every_width():
    measured = [line(r, c, f) for r in (1, 4, 8) for c, f in (("chat", 1.0), ("copy", 1.2))]

    curve = width_curve(measured)

    assert curve.at(4, "copy").value / curve.at(4, "chat").value == pytest.approx(1.2, rel=0.01)


def test_scatter_is_not_taken_for_a_class_of_its_own():
    generator = random.Random(3)
    measured = [
        Timed(rows, category, (8 + 2 * rows) * math.exp(generator.gauss(0, 0.1)))
        for rows in (1, 4)
        for category in ("chat", "code", "copy", "math")
    ]

    curve = width_curve(measured)

    assert all(0.95 < factor < 1.05 for factor in curve.classes.values())
    assert curve.at(4, "chat").low < 16 < curve.at(4, "chat").high


def test_one_number_of_rows_is_taken_as_flat_and_a_falling_line_too():
    assert width_curve([line(4, "chat")]).at(8, "chat").value == 16
    falling = width_curve([Timed(1, "chat", 20.0), Timed(8, "chat", 10.0)])
    assert falling.at(12, "chat").value == 10


def test_a_backend_that_only_decoded_plainly_grows_as_the_others_do():
    records = make_sweep(prompts_per_class=2, num_tokens=32)
    found = costs(compare([r for r in records if r.cell_id != "ngram-extend"]))
    (load,) = {c.place.load for c in found}

    projection = project(found, curves(found), Place("ngram", "extend", 4, "chat", load))

    # Plain eager decoding takes 38 ms; captured, 16.2 ms at width 4 against 11.4 at width 1.
    assert projection.step_ms.value == pytest.approx(38 * 16.2 / 11.4 + 0.5, rel=0.03)
    assert projection.step_ms.low < 40
    assert projection.step_ms.high > 68
