"""The command that trains a head, on a tiny random target."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

import pytest
import torch
from safetensors import safe_open

from drafters.eagle3 import shipped
from drafters.eagle3.checkpoint import load_head, save_head
from drafters.eagle3.data.__main__ import run_config
from drafters.eagle3.data.corpus import Corpus, Sample
from drafters.eagle3.data.generate import Writing, write
from drafters.eagle3.shipped import CARD
from drafters.eagle3.train.__main__ import METRICS, train_head
from drafters.eagle3.train.loop import STATE
from drafters.eagle3.train.target import Target
from drafters.vocab.__main__ import main as vocab_main
from pipeline.target.random_checkpoint import RandomCheckpoint
from tests.drafters.eagle3.tiny import CPU, SHAPE

CHECKPOINT = RandomCheckpoint(SHAPE, torch.float32)
SHAPE_SETTINGS = [
    f"target.shape.{name}={getattr(SHAPE, name)}"
    for name in (
        "num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim",
        "vocab_size", "max_positions",
    )
]  # fmt: skip
SETTINGS = [
    "target=random_8b", "target.dtype=float32", *SHAPE_SETTINGS, "target.shape.rope_theta=1e4",
    "new.draft_vocab_size=48", "kept_back=8", "course.batch=8", "course.epochs=2",
    "course.most_tokens=32", "log=null", "evaluate=null", "device=cpu", "dtype=float32",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    target = Target(CHECKPOINT, CPU, torch.float32)
    prompts = [(n, (7 * n) % 96, (5 * n + 1) % 96) for n in range(40)]
    answers = write(target, prompts, Writing(20, 0.0, 40), frozenset(), 0)
    corpus = Corpus.begin(folder, {"target_digest": CHECKPOINT.digest})
    corpus.add(
        [
            Sample(torch.tensor([*prompt, *answer], dtype=torch.int32), 3)
            for prompt, answer in zip(prompts, answers, strict=True)
        ],
        1,
        {},
    )
    return folder


def run(data, folder, *more):
    return run_config("train", train_head, [*SETTINGS, f"data={data}", f"folder={folder}", *more])


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    assert run(data, folder) == 0
    return folder


def test_training_leaves_a_published_head_and_says_how_it_came_about(trained):
    head = load_head(trained / "head")
    assert head.shape.draft_vocab_size == 48
    assert head.capture_ids == (1, 3, 4)
    card = json.loads((trained / "head" / CARD).read_text())
    assert card["samples"] == 32
    assert card["steps"] == 8
    assert 1 <= card["metrics"]["kept_back/accept_length_offline"] <= 5
    lines = [json.loads(line) for line in (trained / METRICS).read_text().splitlines()]
    assert [line["step"] for line in lines] == [8, 8]
    assert {"loss_1", "accuracy_4", "tokens_per_s", "learning_rate"} <= set(lines[0])


def test_a_trained_head_is_shipped_with_its_card(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "HEADS", tmp_path)
    folder = shipped.ship(trained, "tiny")
    assert shipped.names() == ["tiny"]
    ours, card = load_head(folder), json.loads((folder / CARD).read_text())
    assert ours.vocab.same_as(load_head(trained / "head").vocab)
    assert card["made_of"]["data"]["target_digest"] == CHECKPOINT.digest
    digest = hashlib.sha256((folder / "model.int8.safetensors").read_bytes()).hexdigest()
    assert card["sha256"] == digest


def test_a_shipped_head_can_leave_out_draft_tokens(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "HEADS", tmp_path)
    whole = load_head(trained / "head")
    size = whole.shape.draft_vocab_size - 5
    fewer = load_head(shipped.ship(trained, "fewer", size))
    assert fewer.shape.draft_vocab_size == len(fewer.vocab.ids) == size
    norms = whole.tensors["lm_head.weight"].float().norm(dim=1)
    assert set(fewer.vocab.ids.tolist()) == set(whole.vocab.ids[norms.argsort()[:size]].tolist())


def test_two_processes_train_one_head(data, trained, tmp_path):
    """Each takes half of every batch; sums in another order leave the losses almost alike."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    arguments = ["--nproc-per-node=2", "-m", "drafters.eagle3.train.__main__", *SETTINGS]
    subprocess.run(
        [*torchrun, *arguments, f"data={data}", f"folder={tmp_path}"],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, check=True, timeout=600,
    )  # fmt: skip
    ours, theirs = (
        json.loads((folder / "head" / CARD).read_text())["metrics"]
        for folder in (trained, tmp_path)
    )
    assert theirs["kept_back/loss_1"] == pytest.approx(ours["kept_back/loss_1"], rel=0.01)
    assert len((tmp_path / METRICS).read_text().splitlines()) == 2, "one of them reports"


def test_a_process_killed_outright_loses_at_most_an_interval_and_ends_the_same(data, tmp_path):
    long = ["course.epochs=20", "course.save_every=2"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = [sys.executable, "-m", "drafters.eagle3.train.__main__", *SETTINGS, *long]
    process = subprocess.Popen(
        [*command, f"data={data}", f"folder={killed}"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    while not (killed / STATE).is_file():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    with safe_open(killed / STATE, "pt") as file:
        done = int(file.metadata()["step"])
    assert 0 < done < 80
    assert run(data, killed, *long) == run(data, whole, *long) == 0
    ours, theirs = (load_head(folder / "head").tensors for folder in (whole, killed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_warm_start_without_a_choice_is_refused_where_the_maps_disagree(
    data, trained, tmp_path, capsys
):
    start = f"start={trained / 'head'}"
    assert run(data, tmp_path / "a", start, "new.draft_vocab_size=40") == 1
    assert (
        "map=agree: the head's draft vocabulary and the data's 40 most" in capsys.readouterr().err
    )
    assert run(data, tmp_path / "b", start, "new.draft_vocab_size=40", "map=remap") == 0
    assert load_head(tmp_path / "b" / "head").shape.draft_vocab_size == 40
    assert run(data, tmp_path / "c", start, "course.epochs=0", "map=keep", "course.warm_up=0") == 0
    before, after = load_head(trained / "head"), load_head(tmp_path / "c" / "head")
    for name, tensor in before.tensors.items():
        torch.testing.assert_close(after.tensors[name], tensor)


def test_a_warm_start_says_what_it_assumes_and_does_not_write_it_down(
    data, trained, tmp_path, capsys
):
    start = shutil.copytree(trained / "head", tmp_path / "start")
    config = json.loads((start / "config.json").read_text())
    del config["rope_theta"]
    (start / "config.json").write_text(json.dumps(config))
    settings = (f"start={start}", "course.epochs=0", "map=keep", "course.warm_up=0")
    assert run(data, tmp_path / "run", *settings) == 0
    assert "names no rope_theta, so 10000 is assumed" in capsys.readouterr().err
    assert "rope_theta" not in json.loads((tmp_path / "run" / "head" / "config.json").read_text())
    (start / "config.json").write_text(json.dumps(config | {"norm_before_residual": True}))
    assert run(data, tmp_path / "again", *settings) == 1
    assert "norm_before_residual=True is not supported" in capsys.readouterr().err


def test_wrong_input_is_one_line(data, tmp_path, capsys):
    for setting, message in (
        ("samples=33", "samples=33, kept_back=8"),
        ("new.draft_vocab_size=97", "draft_vocab_size=97: must be 1 to 96"),
        ("target.shape.vocab_size=95", "a head learns from its own target only"),
        (f"start={tmp_path}", "has no config.json; give the folder of an EAGLE-3 head"),
        ("course.batches=3", "course"),
    ):
        assert run(data, tmp_path / "run", setting) == 1
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error


def test_the_command_for_maps_audits_and_moves(data, trained, tmp_path, capsys):
    head = load_head(trained / "head")
    turned = type(head.vocab)(head.vocab.ids.flip(0), head.shape.vocab_size)
    other = type(head)(head.shape, head.tensors, turned, head.capture_ids)
    save_head(other, tmp_path / "turned", torch.float32)
    paths = [str(trained / "head"), str(tmp_path / "turned")]
    assert vocab_main(["audit", *paths]) == 0
    out = capsys.readouterr().out
    assert "A: 48 slots, stored as offset" in out
    assert "tokens that both hold: 48 of 48 (100.0%)" in out
    assert vocab_main(["audit", *paths, "--data", str(data)]) == 0
    weighted = capsys.readouterr().out
    assert "of the target's output" in weighted
    assert "(of the vocabulary, unweighted)" not in weighted
    assert vocab_main(["remap", *paths, str(tmp_path / "moved")]) == 0
    assert "48 rows kept, 0 tokens new to the head, 0 dropped" in capsys.readouterr().out
    moved = load_head(tmp_path / "moved")
    assert moved.vocab.same_as(turned)
    assert vocab_main(["audit", paths[0], str(tmp_path / "none")]) == 1
    assert "no head's folder and no safetensors file" in capsys.readouterr().err
