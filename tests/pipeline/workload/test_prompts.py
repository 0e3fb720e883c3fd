import pytest

from pipeline.workload.prompts import Prompt, check_draft, check_lengths, prompts_digest
from pipeline.workload.rows import read_row

PROMPTS = (Prompt("a", "chat", (1, 2, 3)), Prompt("b", "code", (4, 5, 6, 7)))


def test_a_row_may_name_its_id_and_class_or_leave_them():
    assert read_row({"prompt": "Hi"}, "f:1", "own").id == "f:1"
    named = read_row({"prompt": "Hi", "id": 7, "category": "c"}, "f:1", "own")
    assert (named.id, named.category) == ("7", "c")


def test_a_conversation_keeps_its_turns():
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert read_row({"messages": turns}, "f:1", "own").messages == tuple(turns)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, 'needs either "prompt" or "messages"'),
        ({"prompt": "a", "messages": []}, 'needs either "prompt" or "messages"'),
        ({"prompt": "  \n"}, "the prompt is empty"),
        ({"prompt": 3}, "a prompt is a text"),
        ({"messages": []}, "at least one message"),
        ({"messages": "Hi"}, "at least one message"),
        ({"messages": [{"role": "user"}]}, "a message"),
        ({"messages": ["Hi"]}, "a message"),
        ({"messages": [{"role": "user", "content": ""}]}, "the prompt is empty"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "is the assistant's, not the"),
        ({"prompt": [1, 2, 3]}, "random tokens flatter or starve drafters"),
        ({"messages": [1, 2, 3]}, "random tokens flatter or starve drafters"),
        ({"input_ids": [1, 2, 3]}, "random tokens flatter or starve drafters"),
        ({"prompt": "a", "id": ""}, '"id" must be'),
        ({"prompt": "a", "category": ["c"]}, '"category" must be'),
        ({"prompt": "a \ud83d b"}, r"\\ud83d is half of a character"),
        ({"prompt": "a", "id": "\udc00"}, r"\\udc00 is half of a character"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(row, message):
    with pytest.raises(ValueError, match=f"^f.jsonl:3: .*{message}"):
        read_row(row, "f.jsonl:3", "own")


def test_the_longest_prompt_and_its_answer_must_fit_the_context():
    check_lengths(PROMPTS, max_positions=14, max_new_tokens=10)
    with pytest.raises(
        ValueError, match=r"prompt b has 4 tokens, .* of 13 leaves 3 beside sampling"
    ):
        check_lengths(PROMPTS, max_positions=13, max_new_tokens=10)


def test_the_draft_must_fit_behind_the_longest_prompt_and_its_answer():
    check_draft(PROMPTS, room=20, max_new=10, num_drafts=6)
    with pytest.raises(ValueError, match=r"^drafter.num_draft_tokens=7: .*; set it to 6 or less$"):
        check_draft(PROMPTS, room=20, max_new=10, num_drafts=7)
    with pytest.raises(ValueError, match=r"room for 0 draft tokens .*_tokens=10; lower the latter"):
        check_draft(PROMPTS, room=14, max_new=10, num_drafts=3)


def test_the_digest_tells_any_change_of_the_prompts():
    digest = prompts_digest(PROMPTS)
    assert digest == prompts_digest(tuple(PROMPTS))
    assert digest != prompts_digest(PROMPTS[::-1])
    assert digest != prompts_digest((PROMPTS[0], Prompt("b", "code", (4, 5, 6, 8))))
    assert digest != prompts_digest((PROMPTS[0], Prompt("b", "chat", (4, 5, 6, 7))))
