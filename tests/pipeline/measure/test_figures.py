"""Every figure, checked by eye on responses of a few steps."""

import math

import pytest

from pipeline.measure import Levers, accept_rate, measure
from pipeline.track.metrics import metrics
from tests.pipeline.synthetic import make_plain, make_record, make_response, make_sweep

# A step takes 20 + 1 + 1 = 22 ms with a draft, 19 + 0 + 1 = 20 ms plain.
DRAFTED = make_record("ngram", "graph_captured", [make_response(committed=[4, 1, 3])])
PLAIN = make_record("none", "graph_captured", [make_plain(num_tokens=8)])


def test_accept_length_and_speed_are_ratios_of_sums():
    figures = measure(DRAFTED, PLAIN).overall
    assert figures.num_verify_steps == 3
    assert figures.accept_length.value == 8 / 3
    assert figures.tok_s.value == pytest.approx(8 / 0.066)
    assert figures.end_to_end_tok_s == pytest.approx(9 / 0.116)  # prefill's token, prefill's 50 ms
    assert figures.time_to_first_token_ms == 50
    assert figures.histogram == (1, 0, 1, 1)
    assert (figures.step_ms, figures.verify_ms, figures.draft_ms, figures.host_ms) == (22, 20, 1, 1)


def test_speed_up_is_accept_length_over_break_even():
    versus = measure(DRAFTED, PLAIN).overall.versus
    assert versus.baseline == "none × graph_captured"
    assert versus.baseline_tok_s == pytest.approx(50)
    assert versus.levers.break_even == pytest.approx(1.1)  # 22 ms over 20 ms a token
    assert versus.levers.break_even_floor == pytest.approx(1.0)  # 20 ms over 20 ms
    assert versus.speed_up.value == pytest.approx((8 / 3) / 1.1)


def test_a_token_weighted_mean_and_a_mean_of_requests_differ_from_the_ratio_of_sums():
    short = make_response("a", committed=[4])
    long = make_response("b", committed=[1] * 6)
    figures = measure(make_record("ngram", "extend", [short, long]), None).overall
    assert figures.accept_length.value == 10 / 7
    assert figures.accept_length_per_request == 2.5  # (4 + 1) / 2
    assert figures.accept_length_token_weighted == pytest.approx(2.2)  # (4 × 4 + 1 × 6) / 10
    assert figures.versus is None


def test_classes_stand_beside_the_whole_in_the_workloads_order():
    responses = [
        make_response("m", "math", committed=[1, 1]),
        make_response("c", "copy", committed=[4, 4]),
    ]
    measurement = measure(make_record("ngram", "extend", responses), None)
    lengths = {name: f.accept_length.value for name, f in measurement.classes.items()}
    assert list(lengths.items()) == [("math", 1.0), ("copy", 4.0)]
    assert measurement.overall.accept_length.value == 2.5


def test_repetitions_pool_inside_their_prompt():
    one, two = make_response(committed=[2, 2]), make_response(committed=[2, 2], decode_ms=88.0)
    figures = measure(make_record("ngram", "extend", [one], [two]), None).overall
    assert (figures.num_prompts, figures.num_verify_steps) == (1, 4)
    assert figures.tok_s.value == pytest.approx(8 / (0.044 + 0.088))


def test_the_accept_rate_is_conditional_on_reaching_the_position():
    # Steps that accept 3, 0 and 1 of three draft tokens, and a last step that settles nothing.
    response = make_response(committed=[4, 1, 2, 1])
    assert accept_rate([response], 4) == (2 / 3, 1 / 2, 1.0)


def test_a_draft_that_is_too_short_does_not_reach_the_later_positions():
    response = make_response(committed=[2, 1, 1], proposed=(1, 0, 3), depth=(1, 0, 3))
    rates = accept_rate([response], 4)
    assert rates[0] == 1.0
    assert all(map(math.isnan, rates[1:]))


def test_the_last_step_counts_what_it_accepted_and_not_where_the_stop_cut_it():
    # It committed 3 tokens: two drafts surely; the third may be a draft or the bonus token.
    assert accept_rate([make_response(committed=[1, 3])], 4)[:2] == (1 / 2, 1.0)
    assert math.isnan(accept_rate([make_response(committed=[1, 3])], 4)[2])


def test_a_tree_reaches_as_deep_as_its_deepest_path():
    # Seven nodes over two levels: depth 2, whatever the width is.
    response = make_response(committed=[3, 1, 1], proposed=(7, 7, 7), depth=(2, 2, 2))
    rates = accept_rate([response], 8)
    assert rates[:2] == (1 / 2, 1.0)
    assert all(map(math.isnan, rates[2:]))


def test_the_chain_rule_of_accept_rates_gives_the_accept_length_back():
    # With drafts of full length everywhere, AL = 1 + a1 + a1 a2 + a1 a2 a3, but for last steps.
    committed = [4, 1, 2, 3, 1, 1, 4, 2] * 50
    response = make_response(committed=[*committed, 1])
    a1, a2, a3 = accept_rate([response], 4)
    figures = measure(make_record("ngram", "extend", [response]), None).overall
    assert 1 + a1 + a1 * a2 + a1 * a2 * a3 == pytest.approx(figures.accept_length.value, abs=0.01)


def test_the_hit_rate_counts_steps_with_a_draft():
    response = make_response(committed=[1, 2, 1, 1], proposed=(0, 3, 1, 0), depth=(0, 3, 1, 0))
    assert measure(make_record("ngram", "extend", [response]), None).overall.draft_hit_rate == 0.5


def test_excluding_a_prompt_changes_nothing_for_the_others():
    honest = [make_response("a", committed=[2, 1]), make_response("b", committed=[1, 2])]
    loop = make_response("c", committed=[4] * 20)
    alone = measure(make_record("ngram", "extend", honest), None)
    cleaned = measure(make_record("ngram", "extend", [*honest, loop]), None, frozenset("c"))
    assert cleaned.overall == alone.overall
    assert cleaned.excluded == ("c",)


def test_a_response_that_ended_at_its_first_token_counts_in_no_figure():
    empty = make_response("b", committed=[], tokens=(0,), finish="stop", prefill_ms=9e9)
    record = make_record("ngram", "extend", [make_response("a", committed=[2, 1]), empty])
    assert measure(record, None).overall.num_prompts == 1
    with pytest.raises(ValueError, match="ngram × extend: no prompt with a verify step is left"):
        measure(make_record("ngram", "extend", [empty]), None)


def test_other_processes_share_is_the_median_and_a_busy_machine_is_flagged():
    shares = (0.0, 0.3, 0.2)
    responses = [make_response(f"p{i}", others_cpu=share) for i, share in enumerate(shares)]
    measurement = measure(make_record("ngram", "extend", responses), None)
    assert (measurement.others_cpu_median, measurement.others_cpu_max) == (0.2, 0.3)
    assert measurement.noisy
    unread = measure(make_record("ngram", "extend", [make_response(others_cpu=-1)]), None)
    assert math.isnan(unread.others_cpu_median)
    assert not unread.noisy


def test_levers_of_the_published_example_come_out_by_hand():
    # 16 ms steps that commit 2 of 8 rows, 10 ms a plain token: 0.8 of break-even's 1.6 ... 1.25x.
    levers = Levers(2.0, 8, step_ms=16, verify_ms=12, ms_per_token=10, decode_ms=9)
    assert levers.break_even == 1.6
    assert levers.break_even_floor == 1.2
    assert levers.needed_step_ms == 20
    assert levers.limit_of_verify == 20 / 13
    assert levers.limit_of_overhead == 2.0 / 1.2
    assert levers.limit_of_drafter == 5.0


def test_metrics_carry_the_words_of_the_contract_with_intervals_and_classes():
    plain, drafted = (r for r in make_sweep(3, 40) if r.params["verify"] == "graph_captured")
    flat = metrics(measure(drafted, plain))
    wanted = {"tok_s", "tok_s_low", "tok_s_high", "accept_length", "accept_rate_1", "step_ms"}
    wanted |= {"verify_ms", "draft_ms", "host_ms", "break_even", "speed_up", "speed_up_low"}
    wanted |= {"tok_s/copy", "speed_up_high/chat", "accept_length/math", "break_even/code"}
    assert wanted <= flat.keys()
    assert "decode_ms" not in flat
    assert all(math.isfinite(value) for value in flat.values())


def test_plain_decode_logs_its_forward_as_decode_ms_and_no_draft_positions():
    flat = metrics(measure(PLAIN, PLAIN))
    assert flat["decode_ms"] == 19
    assert flat["speed_up"] == 1
    assert "verify_ms" not in flat
    assert not [name for name in flat if name.startswith("accept_rate")]


def test_a_class_name_that_a_tracker_refuses_is_written_with_underscores():
    record = make_record("ngram", "extend", [make_response(category="Q&A/é [x]")])
    assert "tok_s/Q_A_é _x_" in metrics(measure(record, None))
