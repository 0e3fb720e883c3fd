import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import pipeline
from pipeline.target.target import Target
from pipeline.workload.prompts import prompts_digest
from pipeline.workload.sources import CLASSES, Classes, Hub, Jsonl

DATA = Path(pipeline.__file__).parent / "workload" / "data"


@pytest.fixture(scope="module")
def load(embedded, cache, tmp_path_factory):
    """Load with the embedded tokenizer; copies of data sets go to a cache of the tests' own."""
    target = Target("embedded", str(embedded.folder(cache)))
    own_cache = tmp_path_factory.mktemp("cache")
    return lambda workload: workload.load(target, own_cache)


def jsonl(tmp_path, *lines):
    path = tmp_path / "my.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return str(path)


def test_each_class_gives_its_share_in_the_order_of_the_classes(load):
    prompts = load(Classes(per_class=3))
    assert [prompt.category for prompt in prompts] == [c for c in CLASSES for _ in range(3)]
    assert len({prompt.id for prompt in prompts}) == 12


def test_a_seed_always_gives_the_same_prompts_and_another_gives_others(load):
    digest = prompts_digest(load(Classes(per_class=3)))
    assert prompts_digest(load(Classes(per_class=3))) == digest
    assert prompts_digest(load(Classes(per_class=3, seed=1))) != digest


def test_more_prompts_begin_with_the_same_ones(load):
    few = load(Classes(per_class=2, categories=("math",)))
    many = load(Classes(per_class=5, categories=["math"]))
    assert many[:2] == few


def test_every_shipped_prompt_has_an_origin_and_a_class_of_its_own(load):
    lines = [line for c in CLASSES for line in (DATA / f"{c}.jsonl").read_text().splitlines()]
    rows = [json.loads(line) for line in lines]
    assert Counter(row["category"] for row in rows) == dict.fromkeys(CLASSES, 40)
    assert all(row["source"] for row in rows)
    assert len({row["prompt"] for row in rows}) == len({row["id"] for row in rows}) == 160
    assert max(len(prompt.tokens) for prompt in load(Classes(per_class=40))) < 512


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"per_class": 0}, "workload.per_class=0: must be 1 or more"),
        ({"per_class": -3}, "workload.per_class=-3: must be 1 or more"),
        ({"per_class": 2, "categories": ("chat", "maths")}, "'maths' is not one of chat, code"),
        ({"per_class": 2, "categories": ()}, "name at least one class"),
        ({"per_class": 2, "categories": ("chat", "chat")}, "each only once"),
    ],
)
def test_bad_settings_are_refused_when_they_are_built(settings, message):
    with pytest.raises(ValueError, match=message):
        Classes(**settings)


def test_more_prompts_than_there_are_names_the_setting(load):
    with pytest.raises(ValueError, match=r"workload.per_class=41: only 40 prompts are there"):
        load(Classes(per_class=41))


def test_a_users_file_gives_its_prompts_in_order(load, tmp_path):
    path = jsonl(
        tmp_path,
        '{"prompt": "One"}',
        "",
        '{"messages": [{"role": "user", "content": "Two"}], "category": "mine", "id": "x"}',
    )
    prompts = load(Jsonl(path))
    assert [(p.id, p.category) for p in prompts] == [("my.jsonl:1", "jsonl"), ("x", "mine")]
    assert load(Jsonl(path, num_prompts=1))[0] in prompts


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "cut', r"my.jsonl:2: not JSON"),
        ("[1]", r"my.jsonl:2: not a JSON object"),
        ('{"prompt": ""}', r"my.jsonl:2: the prompt is empty"),
        ('{"text": "Hi"}', r'my.jsonl:2: needs either "prompt"'),
        ('{"prompt": "Hi", "id": "my.jsonl:1"}', r"two prompts have the id 'my.jsonl:1'"),
    ],
)
def test_a_bad_line_is_refused_with_file_and_number(load, tmp_path, line, message):
    with pytest.raises(ValueError, match=message):
        load(Jsonl(jsonl(tmp_path, '{"prompt": "One"}', line)))


def test_bytes_that_are_not_text_are_refused_with_file_and_number(load, tmp_path):
    path = tmp_path / "my.jsonl"
    path.write_bytes(b'{"prompt": "One"}\n{"prompt": "\xff\xfe"}\n')
    with pytest.raises(ValueError, match=r"my.jsonl:2: not JSON"):
        load(Jsonl(str(path)))


def test_a_missing_or_empty_file_is_refused(load, tmp_path):
    with pytest.raises(ValueError, match=r"workload.path=/no/such.jsonl: no such file"):
        Jsonl("/no/such.jsonl")
    with pytest.raises(ValueError, match="the file holds no prompt"):
        load(Jsonl(jsonl(tmp_path)))
    with pytest.raises(ValueError, match=r"workload.num_prompts=0: must be 1 or more"):
        Jsonl(jsonl(tmp_path), num_prompts=0)


def test_a_data_set_gives_the_prompts_of_its_column(load, tmp_path):
    rows = [{"question": f"Question {n}?", "n": n} for n in range(5)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prompts = load(Hub(str(tmp_path), 3, column="question", category="q"))
    assert [prompt.category for prompt in prompts] == ["q"] * 3
    with pytest.raises(ValueError, match=r"workload.column=prompt: .* has question, n"):
        load(Hub(str(tmp_path), 3))
    with pytest.raises(ValueError, match=r"random tokens flatter or starve|a prompt is a text"):
        load(Hub(str(tmp_path), 3, column="n"))
    with pytest.raises(ValueError, match=r"workload.num_prompts=6: only 5 prompts"):
        load(Hub(str(tmp_path), 6, column="question"))
    with pytest.raises(ValueError, match=r"cannot be loaded \(Unknown split"):
        load(Hub(str(tmp_path), 3, split="validation", column="question"))


def test_a_data_set_of_conversations_is_read_as_such(load, tmp_path):
    row = {"turns": [{"role": "user", "content": "Hi"}]}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n")
    (prompt,) = load(Hub(str(tmp_path), 1, column="turns"))
    (tmp_path / "own.jsonl").write_text('{"prompt": "Hi"}\n')
    assert prompt.tokens == load(Jsonl(str(tmp_path / "own.jsonl")))[0].tokens


def test_a_hub_data_set_offline_is_refused_in_one_line(tmp_path):
    script = (
        "from pathlib import Path; from pipeline.workload.sources import Hub; import sys\n"
        "try: Hub('nobody/nothing-like-it', 1).load(None, Path(sys.argv[1]))\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("workload.path=nobody/nothing-like-it: cannot be loaded (")
    assert done.stdout.count("\n") == 1
