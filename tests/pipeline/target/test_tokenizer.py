import json
import shutil

import pytest

from pipeline.target.tokenizer import Tokenizer


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
