"""What a row holds reaches the model, or the row is refused with the field's name."""

import json
import shutil
from dataclasses import replace

import pytest

from pipeline.cell.cell import describe
from pipeline.report.origin import drafter_notes
from pipeline.target.tokenizer import Tokenizer
from pipeline.workload.prompts import prompts_digest, tokenise, workload_note
from pipeline.workload.rows import read_row
from pipeline.workload.sources import Classes, Hub, Jsonl
from tests.faults.tiny_engine import TinyEngine, plan

USER = {"role": "user", "content": "Weather in Rome?"}
FUNCTION = {
    "name": "weather",
    "description": "Says it.",
    "parameters": {"properties": {"city": {}}},
}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
CALLS = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]},
         {"role": "tool", "content": "Sun.", "tool_call_id": "1"},
         {**USER, "content": "And now?"}]  # fmt: skip
# Prints what SmolLM2's leaves out.
RICH = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}<{{ m.role }}>"
    "{{ m.content | trim }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}\n"
    "{% endfor %}{% if not enable_thinking | default(true) %}<think></think>{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(embedded, cache):
    return embedded.tokenizer(cache)


@pytest.fixture(scope="module")
def templated(embedded, cache, tmp_path_factory):
    """Return the embedded tokenizer with another template, or none."""

    def make(template):
        folder = tmp_path_factory.mktemp("templated")
        for path in embedded.folder(cache).glob("*.json"):
            shutil.copy(path, folder)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config.pop("chat_template", None)
        if template:
            config["chat_template"] = template
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        return Tokenizer(folder)

    return make


@pytest.fixture(scope="module")
def rich(templated):
    return templated(RICH)


def read(row):
    return read_row(row, "f:1", "own")


def prompt(row, tokenizer, **kwargs):
    (found,) = tokenise([read(row)], tokenizer, kwargs)
    return found, tokenizer.decode(found.tokens)


SAME = [
    {"messages": [USER]},
    {"question": USER["content"], "answer": "It is sunny there."},
    {"instruction": USER["content"], "input": "", "output": "Sun."},
    {"conversations": [{"from": "human", "value": USER["content"]}], "id": "x"},
    {"conversations": [{"from": "human", "value": USER["content"]},
                       {"from": "gpt", "value": "Sun."}]},
    {"turns": [USER["content"]], "question_id": 81, "category": "writing"},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": USER["content"]}]}]},
    {"prompt": USER["content"], "score": 0.5, "source": "a page of the web", "tools": []},
    {"prompt": USER["content"], "system": None, "functions": [], "context": ""},
    {"messages": [{**USER, "tool_calls": None, "timestamp": "now or later"}]},
]  # fmt: skip


@pytest.mark.parametrize("row", SAME, ids=range(len(SAME)))
def test_the_shapes_that_people_have_give_the_same_prompt(tokenizer, row):
    found, _ = prompt(row, tokenizer)
    assert found.tokens == prompt({"prompt": USER["content"]}, tokenizer)[0].tokens


def test_a_system_prompt_beside_the_prompt_is_its_first_message(tokenizer):
    messages = [{"role": "system", "content": "Answer in French only."}, USER]
    for name in ("system", "system_prompt"):
        found, text = prompt({name: messages[0]["content"], "prompt": USER["content"]}, tokenizer)
        assert found.tokens == prompt({"messages": messages}, tokenizer)[0].tokens
        assert "Answer in French only." in text


def test_tools_and_calls_are_in_the_tokens_where_the_template_prints_them(rich):
    _, text = prompt({"messages": CALLS, "tools": TOOLS}, rich)
    assert '"name": "weather"' in text
    assert '"arguments": {"city": "Rome"}' in text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"messages": [USER], "tools": TOOLS}, 'the row has "tools", which .* does not print'),
        ({"messages": [USER], "documents": [{"text": "x"}]}, 'the row has "documents"'),
        ({"messages": CALLS}, 'message 2 has null content and "tool_calls"'),
        ({"messages": [{**USER, "name": "Ada"}]}, 'message 1 has "name", which'),
        ({"messages": [{**USER, "reasoning_content": "Well"}]}, '"reasoning_content", which'),
        ({"messages": [{**USER, "prefix": True}]}, 'message 1 has "prefix"'),
    ],
)
def test_what_the_template_does_not_print_is_refused_by_name(tokenizer, row, message):
    with pytest.raises(ValueError, match=f"^f:1: .*{message}"):
        prompt(row, tokenizer)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ messages[-1].content }}", "message 1, the user's, is not in the prompt as"),
        ("{% for m in messages %}{{ m.content[:9] }}{% endfor %}", "message 1, the user's"),
        ("{{ tools[0].type }}{{ messages | tojson }}", "leaves out 'weather' of the row's tools"),
        ("{% for m in messages %}{{ m.content | upper | reverse }}{% endfor %}", "is not in the"),
    ],
)
def test_a_template_that_loses_a_text_is_refused(templated, template, message):
    first = {**USER, "content": "A first question, which is long"}
    tools = {"tools": TOOLS} if "tools" in template else {}
    with pytest.raises(ValueError, match=message):
        prompt({"messages": [first, USER], **tools}, templated(template))


def test_thoughts_that_a_template_drops_by_design_are_said_and_the_answer_must_be_there(templated):
    turns = [USER, {"role": "assistant", "content": "<think>Hm.</think>Sun."}, USER]
    drops = templated(
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}|{% endfor %}{{ tools }}"
    )
    found, text = prompt({"messages": turns}, drops)
    assert "Sun." in text
    assert found.notes == ("the chat template leaves out the thoughts of earlier answers",)


def test_a_tokenizer_that_cuts_a_text_is_refused(embedded, cache):
    cut = embedded.tokenizer(cache)
    cut._tokenizer.enable_truncation(12)
    with pytest.raises(ValueError, match="the target's tokenizer has no tokens for a part of it"):
        prompt({"prompt": "One two three four five six seven eight nine ten"}, cut)


def test_a_base_model_continues_one_text_and_says_so_and_takes_no_conversation(templated):
    base = templated(None)
    found, text = prompt({"prompt": "Once upon"}, base)
    assert text == "Once upon"
    assert "no chat template" in workload_note([found])
    turns = [{"role": "system", "content": "Be brief."}, USER,
             {"role": "assistant", "content": "Sun."},
             {"role": "user", "content": "Go on."}]  # fmt: skip
    roles = r"4 turns \(system, user, assistant, user\) and the target has no chat template"
    with pytest.raises(ValueError, match=roles):
        prompt({"messages": turns}, base)
    for row in ({"system": "Be brief.", "prompt": "Hi"}, {"prompt": "Hi", "tools": TOOLS}):
        with pytest.raises(ValueError, match="has no chat template"):
            prompt(row, base)


SHAREGPT = [{"from": "human", "value": "a"}, {"from": "function_call", "value": "{}"}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "Hi", "functions": [FUNCTION]}, '"functions" would change the prompt'),
        ({"prompt": "Hi", "Tools": TOOLS}, '"Tools" would change .*: write it as "tools"'),
        ({"prompt": "Hi", "images": ["a.png"]}, '"images" would .* text alone'),
        ({"prompt": "Hi", "chat_template_kwargs": {"a": 1}}, "set workload.chat_template_kwargs"),
        ({"instruction": "Translate", "input": "Rome", "output": "x"}, '"input" may be a part'),
        ({"question": "Where?", "context": "Rome is in Italy."}, '"context" may be a part'),
        ({"prompt": "Hi", "prefix": "Sure"}, '"prefix" may be a part of the prompt'),
        ({"prompt": "Hi", "persona_text": "You are a pirate"}, '"persona_text" may be a part'),
        ({"prompt": "Hi", "x": {"y": ["use only", "words"]}}, '"x" may be a part'),
        ({"prompt": "Hi", "zusatz": "用中文回答"}, '"zusatz" may be a part'),
        ({"prompt": "Hi", "question": "Ho"}, "not prompt and question"),
        ({"turns": ["a", "b"]}, '"turns" holds 2 questions without the answers .* MT-bench'),
        ({"conversations": SHAREGPT}, "turn 2 of .*ShareGPT conversations.*function_call"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type image_url"),
        ({"messages": [{"role": "user", "content": ["a", "b"]}]}, "2 content parts"),
        ({"system": "a", "messages": [{**USER, "role": "system"}, USER]}, '"system" beside'),
        ({"custom_id": "a", "body": {"messages": [USER]}}, 'found custom_id, body'),
        ({"text": "Hi there"}, 'found text; rename the field'),
        ({"prompt": "word " * 1_000_000}, "characters in one row"),
    ],
)  # fmt: skip
def test_what_would_change_the_prompt_and_is_not_read_is_refused_by_name(row, message):
    with pytest.raises(ValueError, match=f"^f:1: .*{message}"):
        read(row)


def test_a_label_of_unknown_name_is_said_once(tokenizer):
    rows = [read_row({"prompt": "Hi", "split_no": 3, "hard": True, "Kind": "easy"}, f"f:{n}", "own")
            for n in range(3)]  # fmt: skip
    assert workload_note(tokenise(rows, tokenizer, {})) == (
        "not sent of the rows: split_no, hard, Kind"
    )


def test_variables_reach_the_template_and_those_that_it_does_not_read_are_refused(rich, tokenizer):
    on, text = prompt({"prompt": "Hi"}, rich)
    off, without = prompt({"prompt": "Hi"}, rich, enable_thinking=False)
    assert (text + "<think></think>").split() == without.split()
    assert prompts_digest([on]) != prompts_digest([off])
    assert 'chat template with {"enable_thinking": false}' in workload_note([off])
    for name in ("enable_thinkin", "messages", "add_generation_prompt"):
        refusal = rf"^workload.chat_template_kwargs.{name}: .* does not read it; it reads "
        with pytest.raises(ValueError, match=f"{refusal}enable_thinking, tools"):
            prompt({"prompt": "Hi"}, rich, **{name: False})
    with pytest.raises(ValueError, match="does not read it"):
        prompt({"prompt": "Hi"}, tokenizer, enable_thinking=False)


def test_variables_are_part_of_every_workloads_identity(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "Hi"}')
    kwargs = {"enable_thinking": False}
    for kind, settings in ((Classes, {"per_class": 1}), (Jsonl, {"path": str(path)}),
                           (Hub, {"path": "a/b", "num_prompts": 1})):  # fmt: skip
        plain, told = kind(**settings), kind(**settings, chat_template_kwargs=kwargs)
        assert describe(plain) != describe(told)
        assert plain != told
        assert describe(told)["chat_template_kwargs"] == kwargs
        assert hash(told) is not None
        with pytest.raises(ValueError, match="must be a mapping"):
            kind(**settings, chat_template_kwargs="off")


def test_a_folder_of_conversations_is_read_and_its_other_columns_are_said_or_refused(
    embedded, cache, tmp_path
):
    row = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "data.jsonl").write_text(json.dumps(row | {"extra": "some more words"}) + "\n")
    hub = Hub(str(rows), 1, column="conversations")
    (found,) = hub.load(embedded, tmp_path / "cache")
    assert found.tokens == prompt({"prompt": "Hi"}, embedded.tokenizer(cache))[0].tokens
    assert "not sent of the rows: extra" in found.notes
    (rows / "data.jsonl").write_text(json.dumps(row | {"functions": ["a b"]}) + "\n")
    with pytest.raises(ValueError, match='"functions" would change the prompt'):
        hub.load(embedded, tmp_path / "other")


def test_what_the_prompts_say_is_in_the_cells_parameters_and_in_the_report(rich):
    found, _ = prompt({"prompt": "Hi", "split_no": 3}, rich, enable_thinking=False)
    record = replace(plan(TinyEngine()), prompts=(found,)).record
    said = 'not sent of the rows: split_no; chat template with {"enable_thinking": false}'
    assert record.params["workload.note"] == said
    assert drafter_notes([record]) == [said]


def test_a_turn_whose_speaker_is_no_text_is_refused():
    row = {"conversations": [{"from": {}, "value": "Hi"}]}
    with pytest.raises(ValueError, match="turn 1"):
        read_row(row, "x:1", "own")
