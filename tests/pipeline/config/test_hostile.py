"""A config builds classes of this project alone, and no secret stands in what is written."""

import pytest
from omegaconf import OmegaConf

from drafters.eagle3.data.__main__ import make_data, run_config
from drafters.eagle3.train.__main__ import train_head
from pipeline.config.compose import compose_each
from pipeline.config.instantiate import build_part
from pipeline.config.messages import folded, masked

REFUSED = (
    {"_target_": "os.system", "command": "touch pwned"},
    {"_target_": "pipeline.machine.provenance.subprocess.Popen", "args": ["touch", "pwned"]},
    {"_target_": "pipeline.record.record.write_atomically", "path": "pwned", "text": "x"},
    {"_target_": "pipeline.record.record.Path"},
    {"_target_": "drafters.none.NoDrafter", "_partial_": True},
    {"_target_": "drafters.none.NoDrafter", "_args_": [1]},
    {"_target_": "drafters.none.NoDrafter", "x": "${evil}"},
    {"_target_": "drafters.none.NoDrafter", "x": [{"_target_": "os.system", "command": "id"}]},
)


@pytest.mark.parametrize("part", REFUSED)
def test_what_is_no_class_of_ours_is_refused_and_nothing_of_it_runs(part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = {"_target_": "pathlib.Path.touch", "self": "pwned"}
    with pytest.raises(ValueError, match=r"^part\.") as refusal:
        build_part(OmegaConf.create({"part": part, "evil": evil}), "part")
    assert "\n" not in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command", [("features", make_data, "writing"), ("train", train_head, "course")]
)
def test_training_builds_no_class_of_another_project_either(command, tmp_path, capsys):
    file, work, part = command
    given = [f"{part}._target_=os.mkdir", f"+{part}.path={tmp_path}/pwned"]
    assert run_config(file, work, given) == 1
    assert f"{part}._target_=os.mkdir: only classes in" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:hunter2@host/x", "http://***@host/x"),
        ("postgresql://u:hun/ter2@host/db", "postgresql://***@host/db"),
        ("mysql://u:hunter2@!@host/db", "mysql://***@host/db"),
        ("s3://bucket/a?access_key=hunter2&x=1", "s3://bucket/a?access_key=***&x=1"),
        ("serve --api-key hunter2 --port 1", "serve --api-key *** --port 1"),
        ("['--api-key', 'hunter2', '--x']", "['--api-key', '***', '--x']"),
        ('{"password": "hunter2"}', '{"password": "***"}'),
        ("login with hf_abcdefghijklmnopqrstuvwx", "login with ***"),
    ],
)
def test_a_secret_is_hidden_in_every_form(text, shown):
    assert masked(text) == shown


def test_the_value_of_a_secret_variable_is_hidden_wherever_it_stands(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "correct-horse")
    assert masked("loading as correct-horse") == "loading as ***"


@pytest.mark.parametrize(
    "text",
    ["password authentication failed", "no secret is kept", "http://host:80/x", "max_tokens=5"],
)
def test_ordinary_words_stay(text):
    assert masked(text) == text


def test_a_message_never_moves_the_cursor_or_fills_the_screen():
    assert folded("a\x1b[31mb\ud800") == "a?[31mb?"
    assert len(folded("x" * 10**6)) < 5000


def test_a_key_among_the_servers_arguments_is_refused_without_showing_it():
    given = OmegaConf.create(
        {
            "engine": {
                "_target_": "pipeline.engine.sglang.engine.SglangEngine",
                "version": "0.5.17",
                "extra_args": ["--api-key", "hunter2-hunter2"],
            }
        }
    )
    with pytest.raises(ValueError, match="--api-key is refused: a secret has no place") as refusal:
        build_part(given, "engine")
    assert "hunter2" not in str(refusal.value)


def test_a_list_where_a_group_has_a_name_is_one_line():
    with pytest.raises(ValueError, match="cannot be composed") as refusal:
        compose_each([["verify=[1,2]"]])
    assert "\n" not in str(refusal.value)
