"""Numbers that are impossible, unknown or too few are refused in one line that names them."""

import pytest

from pipeline.roi.__main__ import main
from pipeline.roi.numbers import parse
from pipeline.roi.situation import close
from pipeline.roi.verdict import from_numbers

BASE = ["baseline_tok_s=82", "accept_length=2.0", "tok_s=60"]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("speed=3", "speed=3: not a number I know"),
        ("verify_ms", "verify_ms: not a number I know"),
        ("verify_ms=fast", "verify_ms=fast: not a number"),
        ("verify_ms=0", "verify_ms=0: time of the target forward.* more than 0"),
        ("verify_ms=nan", "verify_ms=nan: must be finite"),
        ("accept_length=0.5", "accept_length=0.5: .* must be 1 or more"),
        ("baseline_tok_s=-1", "baseline_tok_s=-1: .* more than 0"),
        ("allreduces=0", "allreduces=0: .* must be 1 or more"),
        ("accept_rate=0.6/1.4", "accept_rate=1.4: a rate by position is between 0 and 1"),
    ],
)
def test_an_impossible_number_is_refused(argument, message):
    with pytest.raises(ValueError, match=message):
        parse([argument])


def test_a_number_given_twice_is_refused():
    with pytest.raises(ValueError, match="tok_s is given twice"):
        parse([*BASE, "tok_s=61"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["accept_length=2", "tok_s=60"], "baseline_tok_s is missing"),
        (["baseline_tok_s=82", "tok_s=60"], "accept_length is missing"),
        (["baseline_tok_s=82", "accept_length=2"], "tok_s is missing"),
    ],
)
def test_too_few_numbers_say_which_is_missing(arguments, message):
    with pytest.raises(ValueError, match=message):
        close(parse(arguments))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("target=gpt", "target=gpt: published drafters are known of kimi_k2_5, kimi_k2"),
        ("scale=moon", "not a number I know"),
        ("verify_ms_to=5", "verify_ms_to=5: a verify step costs at least a plain forward, 12.2 ms"),
        ("width=2", None),
        ("samples_to=5", None),  # without `samples` there is nothing to compare with
    ],
)
def test_the_command_line_answers_in_one_line(argument, message, capsys):
    code = main([*BASE, "verify_ms=30", argument])
    out, err = capsys.readouterr()

    if message is None:
        assert code == 0
        assert "twice the samples" in out
    else:
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


def test_no_question_is_answered_with_the_three_that_can_be_asked(capsys):
    assert main([]) == 2
    assert "sweep=FOLDER, scale=NAME, or numbers" in capsys.readouterr().err


def test_a_folder_without_a_sweep_is_refused(capsys, tmp_path):
    assert main([f"sweep={tmp_path}"]) == 2
    assert "no sweep.json there" in capsys.readouterr().err


def test_batch_counts_on_both_sides():
    at = close(parse([*BASE[:1], "accept_length=2.0", "tok_s=60", "batch=4"]))

    assert at.step_ms == pytest.approx(4 * 1000 * 2 / 60)
    assert at.levers.break_even == pytest.approx(2.0 * 82 / 60)


def test_a_width_is_judged_by_the_rates_of_its_positions():
    numbers = parse([*BASE, "verify_ms=30", "width=4", "width_to=2", "accept_rate=0.6/0.4/0.3"])
    (lever,) = [g for g in from_numbers(numbers).gains if g.name.startswith("width 2")]

    # 1 + .6 = 1.6 of 1 + .6 + .24 + .072 = 1.912 at the same step; or at a third of its extra.
    assert lever.factor.low == pytest.approx(1.6 / 1.912)
    assert lever.factor.high > 1


def test_a_wider_step_than_the_rates_reach_is_refused():
    numbers = parse([*BASE, "verify_ms=30", "width=3", "width_to=6", "accept_rate=0.7/0.45"])
    with pytest.raises(ValueError, match="width_to=6: accept_rate has 2 positions"):
        from_numbers(numbers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["accept_length=3", "width=2"], "accept_length=3.00: a step of width=2 commits at most"),
        (["accept_length=2", "width=4", "accept_length_to=5"], "accept_length_to=5: at most the"),
        (["accept_length=2", "samples=9", "samples_to=9"], "samples_to=9: must be more than"),
    ],
)
def test_more_tokens_than_rows_and_fewer_samples_than_now_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        from_numbers(parse(["baseline_tok_s=82", "tok_s=60", *arguments]))
