"""What is a loop, and what only looks like one."""

import re

import pytest

from pipeline.measure.prompts import loop_period, looping_prompts
from tests.pipeline.synthetic import make_record, make_response

WORDS = {}


def tokens_of(text):
    """Cut into words, runs of spaces and single signs, each text piece with its own number."""
    pieces = re.findall(r"\w+| +|\n|[^\w\s]", text)
    return [WORDS.setdefault(piece, len(WORDS)) for piece in pieces]


LIST = "Here are some tips:\n" + "".join(
    f"{i}. **{name}**: {name} helps you to stay focused.\n"
    for i, name in enumerate(["Sleep", "Music", "Walking", "Reading", "Tea", "Silence"], 1)
)
CODE = """def area(shape):
    if shape.kind == "circle":
        return 3.14 * shape.r * shape.r
    if shape.kind == "square":
        return shape.a * shape.a
    if shape.kind == "triangle":
        return 0.5 * shape.a * shape.h
    if shape.kind == "ellipse":
        return 3.14 * shape.a * shape.b
    return None
"""
TABLE = "| day | high | low |\n| --- | --- | --- |\n" + "".join(
    f"| {day} | {20 + i} | {10 + i} |\n"
    for i, day in enumerate(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat"])
)
COPY = "The quick brown fox jumps over the lazy dog. " * 2 + "That is the sentence, twice."
CHORUS = "Row, row, row your boat,\nGently down the stream.\n" * 2
ZEROS = "row = [" + "0, " * 7 + "0]"
RULE = "Summary\n" + "-" * 20


@pytest.mark.parametrize("text", [LIST, CODE, TABLE, COPY, CHORUS, ZEROS, RULE])
def test_honest_repetitive_text_is_not_a_loop_wherever_the_length_limit_cuts_it(text):
    tokens = tokens_of(text)
    assert [loop_period(tokens[:end]) for end in range(len(tokens) + 1)] == [0] * (len(tokens) + 1)


@pytest.mark.parametrize(
    ("cycle", "times"),
    [([7], 24), ([7, 8], 12), ([1, 2, 3, 4, 5], 5), (list(range(60)), 3)],
)
def test_three_periods_over_24_tokens_are_a_loop_and_one_token_less_is_not(cycle, times):
    tokens = [99, 98, 97, *cycle * times]
    assert loop_period(tokens) == len(cycle)
    enough = max(24, 3 * len(cycle))
    assert loop_period(tokens[len(tokens) - enough + 1 :]) == 0


def test_a_loop_that_the_response_left_again_does_not_count():
    assert loop_period([*[5, 6] * 20, 1]) == 0


def test_a_sentence_said_again_and_again_is_a_loop_even_when_it_is_cut_in_its_middle():
    sentence = tokens_of("I am here to help you with anything you need. ")
    assert loop_period((sentence * 5)[:-4]) == len(sentence)


def test_a_prompt_loops_if_any_repetition_does_and_its_stop_token_is_no_way_out():
    loop = tuple([1, 2, 3] * 10)
    honest = make_response("a", committed=[1] * 30)
    stopped = make_response("b", committed=[1] * 30, tokens=(*loop, 0), finish="stop")
    late = make_response("a", committed=[1] * 29, tokens=loop)
    assert looping_prompts(make_record("none", "extend", [honest, stopped])) == {"b"}
    assert looping_prompts(make_record("none", "extend", [honest], [late])) == {"a"}
