import json
import shutil
from dataclasses import replace

import pytest

from pipeline.machine.cache import cache_root
from pipeline.target.target import Target
from pipeline.target.tokenizer import Tokenizer
from pipeline.workload.sources import Jsonl


@pytest.fixture(scope="module")
def source(embedded, cache):
    return embedded.folder(cache)


@pytest.fixture
def folder(source, tmp_path):
    """A folder with the embedded target's tokenizer, to change as a test likes."""
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(source / name, tmp_path)
    return tmp_path


def change(folder, **settings):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))
    return folder


def user(text):
    return [{"role": "user", "content": text}]


def test_the_prompt_ends_where_the_answer_begins(source):
    rendered = Tokenizer(source).render(user("Hi"))
    assert rendered.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_text_comes_back_from_its_tokens(source):
    tokenizer = Tokenizer(source)
    text = "def f(x):\n    return x  # naïve 日本語 🎉 123\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_template_may_be_a_file_of_its_own(folder):
    (folder / "chat_template.jinja").write_text("[{{ messages[0]['content'] }}]{{ eos_token }}")
    assert Tokenizer(folder).render(user("Hi")) == "[Hi]<|im_end|>"


def test_of_several_templates_the_default_is_used(folder):
    templates = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    assert Tokenizer(change(folder, chat_template=templates)).render(user("Hi")) == "d"


def test_blocks_are_trimmed_and_json_is_not_escaped_as_hugging_face_does(folder):
    template = "{% if true %}\n    {% set x = {'a': 'é<b>'} %}\n{{ x | tojson }}\n{% endif %}\n"
    assert Tokenizer(change(folder, chat_template=template)).render(user("")) == '{"a": "é<b>"}\n'


def test_a_template_that_prints_the_date_prints_the_same_one_every_day(folder):
    template = "{{ strftime_now('%d %b %Y') }}"
    assert Tokenizer(change(folder, chat_template=template)).render(user("")) == "26 Jul 2024"


def test_a_template_may_refuse_a_conversation(folder):
    template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(ValueError, match="refuses: roles must alternate"):
        Tokenizer(change(folder, chat_template=template)).render(user("Hi"))


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
    ],
)
def test_a_template_runs_in_a_sandbox(folder, template):
    with pytest.raises(ValueError, match=r"refuses: .*(unsafe|not safely callable)"):
        Tokenizer(change(folder, chat_template=template)).render(user("Hi"))


def test_a_broken_template_is_refused_when_it_is_read(folder):
    with pytest.raises(ValueError, match=r"the chat template of .* cannot be read"):
        Tokenizer(change(folder, chat_template="{% if %}"))


def test_a_base_model_continues_the_text(folder):
    tokenizer = Tokenizer(change(folder, chat_template=None))
    assert tokenizer.chat(user("Once upon")) == tokenizer.encode("Once upon")
    with pytest.raises(ValueError, match="has no chat template"):
        tokenizer.render(user("Hi"))


def test_a_template_in_another_encoding_is_refused_by_its_file(folder):
    (folder / "chat_template.jinja").write_bytes("{{ 'é' }}".encode("utf-16"))
    with pytest.raises(ValueError, match=r"chat_template\.jinja is no text"):
        Tokenizer(folder)


def test_the_generation_config_may_name_several_end_tokens(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 5]}')
    assert Tokenizer(folder).stop_ids == {0, 2, 5}


def test_a_special_token_may_be_an_object(folder):
    tokenizer = Tokenizer(change(folder, eos_token={"content": "<|endoftext|>", "lstrip": False}))
    assert tokenizer.stop_ids == {0, 2}


def test_a_missing_tokenizer_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no tokenizer.json; only fast tokenizers"):
        Tokenizer(tmp_path)


def test_a_damaged_tokenizer_is_refused_in_one_line(folder):
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text[: len(text) // 2])
    with pytest.raises(ValueError, match=r"tokenizer.json is not JSON"):
        Tokenizer(folder)


def test_a_tokenizer_of_another_form_is_refused_in_one_line(folder):
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model": {"type": "Nothing"}}')
    with pytest.raises(ValueError, match=r"tokenizer\.json is no tokenizer \(.*; copy it again"):
        Tokenizer(folder)


TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "  Hello.\n"},
    {"role": "user", "content": "Go on."},
]
# Templates as checkpoints have them: what Transformers renders is rendered here.
TEMPLATES = {
    "generation": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role }}\n"
        "{% if m.role == 'assistant' %}\n"
        "  {% generation %}\n    {{ m.content }}{% endgeneration %}\n"
        "{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>' }}\n{% endfor %}"
    ),
    "generation_trimmed": (
        "{%- for m in messages -%}{%- generation -%}{% set x = m.content | trim %}{{ x }}|"
        "{%- endgeneration -%}{{ x is defined }}{{ loop.index }}{%- endfor -%}"
    ),
    "tools": "{% if tools is not none %}T{% endif %}{% if documents is none %}D{% endif %}",
    "tojson": (
        "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}"
        "{{ {'b': 'é', 'a': 1} | tojson(ensure_ascii=true, sort_keys=true) }}"
        "{{ [1, 2] | tojson(separators=(',', ':')) }}{{ {'a': 1} | tojson(false, 4) }}"
    ),
    "loops": (
        "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
        "{{ m.content }}{% if loop.index > 2 %}{% break %}{% endif %}{% endfor %}"
    ),
    "macros": (
        "{% macro turn(m) %}[{{ m['role'] }}] {{ m.content }}{% endmacro %}"
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{{ turn(m) }}{% endfor %}{{ ns.n }}{{ bos_token }}{{ eos_token }}{{ pad_token }}"
    ),
    "added_turns": "{% for m in messages + [{'content': 'x'}] %}{{ m.content }}{% endfor %}",
    "slices": (
        "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% endif %}"
        "{{ rest | map(attribute='content') | join('/') }}{{ messages[-1].content.split(' ')[0] }}"
        "{{ dict(a=1) | tojson }}{% if add_generation_prompt %}>{% endif %}"
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_renders_as_in_transformers(folder, name):
    from transformers.utils.chat_template_utils import render_jinja_template

    tokenizer = Tokenizer(change(folder, chat_template=TEMPLATES[name]))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    specials = {key: config[key] for key in ("bos_token", "eos_token", "pad_token")}
    theirs, _ = render_jinja_template(
        [TURNS], chat_template=TEMPLATES[name], add_generation_prompt=True, **specials
    )
    assert tokenizer.render(tuple(TURNS)) == theirs[0] != ""


def test_generation_tags_change_no_token(folder):
    plain = TEMPLATES["generation"].replace("{% generation %}", "{% if true %}")
    plain = plain.replace("{% endgeneration %}", "{% endif %}")
    tagged = Tokenizer(change(folder, chat_template=TEMPLATES["generation"])).chat(TURNS)
    assert tagged == Tokenizer(change(folder, chat_template=plain)).chat(TURNS)


@pytest.mark.parametrize(
    "tags", ["{% generation %}x", "{% generation %}{% endif %}", "x{% endgeneration %}"]
)
def test_tags_that_do_not_pair_are_refused_when_they_are_read(folder, tags):
    with pytest.raises(ValueError, match=r"the chat template of .* cannot be read"):
        Tokenizer(change(folder, chat_template=tags))


@pytest.mark.parametrize("where", ["tokenizer_config.json", "chat_template.json"])
@pytest.mark.parametrize(
    "templates",
    [
        "d",
        {"default": "d", "tool_use": "t"},
        [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}],
    ],
)
def test_a_template_is_found_in_every_form_and_file(folder, where, templates):
    change(folder, chat_template=None)
    path = folder / where
    config = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(config | {"chat_template": templates}))
    assert Tokenizer(folder).render(user("Hi")) == "d"


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        ({"tool_use": "t", "rag": "r"}, r"templates \(tool_use, rag\) none is named default"),
        ([{"name": "rag", "template": "r"}], r"templates \(rag\) none is named default"),
        ({"default": 3}, "chat_template is no text"),
        (7, "chat_template is no text"),
    ],
)
def test_templates_that_none_can_be_chosen_of_are_refused(folder, templates, message):
    with pytest.raises(ValueError, match=message):
        Tokenizer(change(folder, chat_template=templates))


@pytest.mark.parametrize(
    "template", ["{{ 1 / 0 }}", "{{ messages[0].content + 1 }}", "{{ none.x.y }}", "{{ 'a' % 3 }}"]
)
def test_a_template_that_fails_is_one_line(folder, template):
    with pytest.raises(ValueError, match=r"the chat template of .* refuses: "):
        Tokenizer(change(folder, chat_template=template)).render(user("Hi"))


def test_special_tokens_may_stand_in_a_file_of_their_own(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    specials = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "<|im_end|>"}
    kept = {key: value for key, value in config.items() if key not in specials}
    kept["chat_template"] = "{{ bos_token }}{{ eos_token }}"
    (folder / "tokenizer_config.json").write_text(json.dumps(kept))
    (folder / "special_tokens_map.json").write_text(json.dumps(specials))
    assert Tokenizer(folder).render(user("Hi")) == "<s><|im_end|>"


@pytest.fixture
def thinking(folder):
    """A tokenizer with one token more than the target has rows, and a template that prints it."""
    path = folder / "tokenizer.json"
    plain = json.loads(path.read_text())
    token = plain["added_tokens"][-1] | {"id": 49152, "content": "<|think|>"}
    path.write_text(json.dumps(plain | {"added_tokens": [*plain["added_tokens"], token]}))
    return change(folder, chat_template="{{ messages[0].content }}<|think|>")


def test_a_token_without_a_row_is_refused_with_both_sizes(thinking):
    tokenizer = Tokenizer(thinking)
    assert tokenizer.encode("Hi"), "a prompt without it can be measured"
    with pytest.raises(
        ValueError, match=r"token '<\|think\|>' has id 49152, .* has 49152 rows .* 49153 tokens"
    ):
        tokenizer.chat(user("Hi"))


def test_a_prompt_is_named_whose_token_has_no_row(thinking, embedded, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "Hi"}\n')
    workload = Jsonl(str(path))
    (thinking / "config.json").write_text('{"text_config": {"vocab_size": 49000}}')
    with pytest.raises(ValueError, match=r"^rows\.jsonl:1: token '<\|think\|>' .* has 49000 rows"):
        workload.load(Target("t", str(thinking)), tmp_path)
    other = replace(embedded, tokenizer_source=str(thinking))
    with pytest.raises(ValueError, match=r"^rows\.jsonl:1: token '<\|think\|>' .* has 49152 rows"):
        workload.load(other, cache_root())


def test_an_embedding_that_is_larger_than_the_tokenizer_is_fine(thinking):
    config = json.loads((thinking / "config.json").read_text())
    (thinking / "config.json").write_text(json.dumps(config | {"vocab_size": 49280}))
    assert Tokenizer(thinking).chat(user("Hi"))[-1] == 49152


def test_a_list_of_templates_may_hold_anything(folder):
    change(folder, chat_template=[3, [1], {"name": []}, {"name": "default", "template": "x"}])
    assert Tokenizer(folder).render(user("hi")) == "x"


def test_a_tokenizer_that_makes_its_library_panic_is_refused_in_one_line(folder):
    model = {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", ""]]}
    model["continuing_subword_prefix"] = "##"
    (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}))
    with pytest.raises(ValueError, match="is no tokenizer"):
        Tokenizer(folder)
