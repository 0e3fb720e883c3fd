"""From a reply and its steps to a response; counts that disagree are refused."""

import pytest

from pipeline.engine.sglang.counts import (
    Miscount,
    Records,
    Reply,
    StepRecord,
    check_reply,
    device_seconds,
    margins,
    margins_shared,
    read_records,
    response,
    timer_disagreement,
)
from pipeline.workload.prompts import Prompt

PROMPT = Prompt("p", "chat", (1, 2, 3))


def records(*committed: int, graph: bool = True) -> Records:
    steps = [
        StepRecord("target_verify", 1, graph, 4.0, 1.0, 10.0 + 0.01 * (i + 1), {"r": count})
        for i, count in enumerate(committed)
    ]
    return Records(1, 0, {"r": 10.0}, tuple(steps))


def answer(num_tokens: int, *correct: int, wall_ms: float = 100.0, **meta) -> Reply:
    """A reply as SGLang gives it, with the counts of these steps."""
    spec = {
        "spec_verify_ct": len(correct),
        "spec_num_correct_drafts": sum(correct),
        "spec_correct_drafts_histogram": [
            correct.count(i) for i in range(max(correct, default=0) + 1)
        ],
    }
    info = {
        "finish_reason": {"type": "stop", "matched": 2},
        "completion_tokens": num_tokens,
        "cached_tokens": 0,
        "num_retractions": 0,
        **(spec if correct else {}),
        **meta,
    }
    reply = {"output_ids": list(range(num_tokens)), "meta_info": info}
    return Reply(PROMPT, "r", reply, wall_ms, 0.0)


def test_accept_length_is_one_and_the_accepted_over_the_steps():
    made = response(answer(7, 2, 0, 1), records(3, 1, 2), 3, 3, ())
    assert made.committed == (3, 1, 2)
    assert sum(made.committed) / len(made.committed) == 1 + (2 + 0 + 1) / 3
    assert made.step_ms == pytest.approx((10.0, 10.0, 10.0))
    assert made.decode_ms == pytest.approx(30.0)
    assert made.prefill_ms == pytest.approx(70.0)


def test_tokens_past_the_stop_leave_the_last_step():
    made = response(answer(5, 2, 3), records(3, 4), 3, 3, ())
    assert made.committed == (3, 1)


def test_a_request_that_ended_at_its_first_token_has_no_step():
    made = response(answer(1), Records(1, 0, {"r": 10.0}, ()), 3, 3, ())
    assert (made.committed, made.decode_ms) == ((), 0.0)


@pytest.mark.parametrize(
    ("given", "steps", "message"),
    [
        (answer(7, 2, 0, 2), (3, 1, 2), "the plugin saw 3 steps with 3 accepted"),
        (answer(7, 2, 0), (3, 1, 2), "SGLang counted 2 with 2"),
        (answer(9, 2, 0, 1), (3, 1, 2), "steps committed 6 tokens, 8 came back"),
        (answer(4, 2, 0, 1), (3, 1, 2), "steps committed 6 tokens, 3 came back"),
        (answer(3), (2,), "plain decoding committed several tokens"),
        (answer(7, 2, 0, 1, completion_tokens=8), (3, 1, 2), "7 tokens came back, 8 were counted"),
        (answer(7, 2, 0, 1, wall_ms=20), (3, 1, 2), "30.0 ms by the scheduler's clock, 20.0 ms"),
        (answer(7, 2, 0, 1, finish_reason={"type": "abort"}), (3, 1, 2), "ended with .*abort"),
    ],
)
def test_counts_and_times_that_contradict_each_other_are_refused(given, steps, message):
    with pytest.raises(Miscount, match=message):
        response(given, records(*steps), 3, 3, ())


def test_the_same_steps_in_another_order_are_not_noticed_by_the_histogram_alone():
    """Why the plugin is needed: SGLang's counts do not fix the order of the steps."""
    first = response(answer(7, 2, 0, 1), records(3, 1, 2), 3, 3, ())
    second = response(answer(7, 2, 0, 1), records(1, 2, 3), 3, 3, ())
    assert sorted(first.committed) == sorted(second.committed)
    assert first.committed != second.committed


def test_a_margin_is_the_difference_of_the_two_best():
    two = [[[-0.25, 5, None], [-2.0, 7, None]], [[-0.5, 5, None], [-0.5, 6, None]]]
    assert margins({"meta_info": {"output_top_logprobs": two}}) == (1.75, 0.0)


@pytest.mark.parametrize(
    ("tokens", "shared"),
    [((1, 2, 3), (0.1, 0.2, 0.3)), ((1, 9, 3), (0.1, 0.2)), ((1, 2), (0.1, 0.2, 0.3))],
)
def test_margins_hold_up_to_where_a_second_answer_parts(tokens, shared):
    assert margins_shared((1, 2, 3), (0.1, 0.2, 0.3), tokens) == shared


def test_the_device_timer_of_the_first_rank_is_summed_by_category():
    page = (
        "# HELP sglang:forward_execution_seconds_total Total time\n"
        'sglang:forward_execution_seconds_total{category="decode",tp_rank="0"} 1.5\n'
        'sglang:forward_execution_seconds_total{tp_rank="0",category="target_verify"} 2.0\n'
        'sglang:forward_execution_seconds_total{category="target_verify",tp_rank="1"} 1.9\n'
        'sglang:forward_execution_seconds_total{category="target_verify",pp_rank="1"} 0.25\n'
        'sglang:other_total{category="decode"} 9\n'
    )
    assert device_seconds(page) == {"decode": 1.5, "target_verify": 2.25}


@pytest.mark.parametrize(
    ("graph", "theirs", "agrees"),
    [
        (True, 0.24, True),
        (True, 0.2, False),
        (True, 0.3, False),
        (False, 0.1, True),
        (False, 0.3, False),
    ],
)
def test_two_clocks_of_the_same_forwards_must_agree(graph, theirs, agrees):
    steps = records(*[1] * 60, graph=graph).steps
    assert (timer_disagreement(steps, theirs) == "") == agrees


def test_few_steps_and_a_timer_that_is_off_say_nothing():
    assert timer_disagreement(records(1, 1).steps, 9.0) == ""
    assert timer_disagreement(records(*[1] * 60).steps, 0.0) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"flush": 1, "lost": 0, "first_s": {}, "steps": []}', "wrote no steps at /flush_cache"),
        ('{"flush": 2, "lost": 3, "first_s": {}, "steps": []}', "lost 3 steps"),
    ],
)
def test_records_that_are_old_or_lack_steps_are_refused(tmp_path, text, message):
    (tmp_path / "steps.json").write_text(text)
    with pytest.raises(RuntimeError, match=message):
        read_records(tmp_path, 1)


@pytest.mark.parametrize(
    ("meta", "named"),
    [
        ({"completion_tokens": "5"}, "meta_info.completion_tokens"),
        ({"finish_reason": "stop"}, "meta_info.finish_reason"),
        ({"spec_correct_drafts_histogram": None}, "meta_info.spec_correct_drafts_histogram"),
    ],
)
def test_a_reply_of_another_form_is_refused_by_its_field(meta, named):
    with pytest.raises(Miscount, match=f"no sound reply: {named}"):
        check_reply(answer(5, 2, 2, **meta).reply)


def test_a_response_that_ends_at_its_first_token_has_no_steps():
    none = {"spec_verify_ct": 0, "spec_num_correct_drafts": 0, "spec_correct_drafts_histogram": []}
    assert response(answer(1, **none), records(), 3, 3, ()).committed == ()


def test_a_step_that_committed_absurdly_many_tokens_is_refused_at_once():
    with pytest.raises(Miscount, match="the plugin saw 1 steps"):
        response(answer(5, 2), records(10**12), 3, 3, ())


def test_damaged_steps_are_one_line(tmp_path):
    (tmp_path / "steps.json").write_text('{"flush": 1, "lost": 0, "first_s": {}, "steps": [3]}')
    with pytest.raises(RuntimeError, match=r"^the plugin's steps are damaged: steps\.0"):
        read_records(tmp_path, 0)
