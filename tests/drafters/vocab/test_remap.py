"""Moving a head to another map: rows follow their tokens, and proposals follow the rows."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafters.eagle3.checkpoint import Head, load_head, save_head
from drafters.eagle3.runner import EagerRunner
from drafters.eagle3.shipped import shipped
from drafters.vocab.__main__ import main
from drafters.vocab.maps import VocabMap
from drafters.vocab.remap import overwrite, remap
from tests.drafters.eagle3.heads import SHAPE, random_head

HEAD = random_head()
FEATURES = torch.randn(12, 3 * SHAPE.hidden_size, generator=torch.Generator().manual_seed(1))
EMBEDDING = torch.randn(
    SHAPE.vocab_size, SHAPE.hidden_size, generator=torch.Generator().manual_seed(2)
)


def drafted(head: Head) -> tuple[list[int], torch.Tensor]:
    """A chain of 5 target tokens, and the scores of the first by target token."""
    runner = EagerRunner(head, EMBEDDING, 32, torch.float32)
    tokens = list(range(12))
    slots = runner.chain(tokens, FEATURES, 0, 5)
    scores = torch.full((SHAPE.vocab_size,), float("-inf"))
    scores[head.vocab.ids] = runner.extend(tokens, FEATURES, 0).logits[0]
    return [int(head.vocab.ids[slot]) for slot in slots], scores


def permuted() -> Head:
    """The same head with its slots in another order."""
    order = torch.randperm(SHAPE.draft_vocab_size, generator=torch.Generator().manual_seed(3))
    rows = HEAD.tensors["lm_head.weight"][order]
    vocab = VocabMap(HEAD.vocab.ids[order], SHAPE.vocab_size)
    return replace(HEAD, tensors={**HEAD.tensors, "lm_head.weight": rows}, vocab=vocab)


def test_remapping_a_permuted_head_gives_the_same_proposals_and_the_same_weights():
    moved, report = remap(permuted(), HEAD.vocab)
    assert (report.kept, report.new, report.dropped) == (SHAPE.draft_vocab_size, 0, 0)
    assert torch.equal(moved.tensors["lm_head.weight"], HEAD.tensors["lm_head.weight"])
    tokens, scores = drafted(moved)
    expected_tokens, expected = drafted(HEAD)
    assert tokens == expected_tokens
    assert torch.equal(scores, expected), "bit for bit"


def test_a_permuted_head_read_with_the_wrong_map_drafts_other_tokens():
    wrong = overwrite(permuted(), HEAD.vocab)
    assert drafted(wrong)[0] != drafted(HEAD)[0]
    assert drafted(permuted())[0] == drafted(HEAD)[0]


def test_a_move_to_another_vocabulary_keeps_the_scores_of_the_tokens_that_both_hold():
    absent = torch.tensor([t for t in range(96) if t not in set(HEAD.vocab.ids.tolist())])
    ids = torch.cat([HEAD.vocab.ids[8:], absent[:8]]).sort().values
    moved, report = remap(HEAD, VocabMap(ids, SHAPE.vocab_size))
    assert (report.kept, report.new, report.dropped) == (32, 8, 8)
    _, scores = drafted(moved)
    _, before = drafted(HEAD)
    torch.testing.assert_close(scores[HEAD.vocab.ids[8:]], before[HEAD.vocab.ids[8:]])
    assert drafted(moved)[0][0] not in absent.tolist(), "untrained tokens score the average"


def test_maps_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="map of a target with 97 tokens: the head's target has 9"):
        remap(HEAD, VocabMap(HEAD.vocab.ids, 97))
    with pytest.raises(ValueError, match="map of 39 slots on a head of 40"):
        overwrite(HEAD, VocabMap(HEAD.vocab.ids[1:], SHAPE.vocab_size))


def test_the_command_compares_heads_as_they_come_with_the_package(capsys):
    heads = [str(shipped("shipped:smollm2_stories"))] * 2
    assert main(["audit", *heads]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "same token in the same slot: 4096 of 4096"


@pytest.fixture
def stored(tmp_path):
    """Write the head under a name, with changes to its maps and its configuration."""

    def write(name: str, d2t=None, t2d=None, **settings) -> str:
        folder = tmp_path / name
        save_head(HEAD, folder)
        path, config = folder / "model.safetensors", folder / "config.json"
        changed = {"d2t": d2t, "t2d": t2d}
        tensors = {k: changed.get(k, v) for k, v in load_file(path).items()}
        kept = {k: v.clone() for k, v in tensors.items() if v is not None}
        save_file(kept | ({} if d2t is not None else {"d2t": HEAD.vocab.d2t}), path)
        config.write_text(json.dumps(json.loads(config.read_text()) | settings))
        return str(folder)

    return write


@pytest.mark.parametrize("mask", [None, HEAD.vocab.t2d])
@pytest.mark.parametrize(
    ("d2t", "why"),
    [
        (HEAD.vocab.ids, "d2t holds token ids, engines read it as offsets"),
        (torch.arange(40), "d2t is 0, 1, 2, …, which engines read as token 2i"),
    ],
)
def test_a_map_that_engines_misread_is_wrong_and_says_what_it_costs(stored, capsys, d2t, why, mask):
    sound, wrong = stored("sound"), stored("wrong", d2t, mask)
    meant = torch.arange(40) if mask is None and d2t is not HEAD.vocab.ids else HEAD.vocab.ids
    right = int((meant == d2t + torch.arange(40)).sum())
    for pair, who in (([sound, wrong], "B"), ([wrong, sound], "A"), ([wrong, wrong], "A")):
        assert main(["audit", *pair]) == 1
        out = capsys.readouterr().out
        assert f"{who} is wrong: {why}" in out
        assert f"engines read {right} of 40 slots ({right / 40:.1%}) right" in out
    assert right < 8
    assert "same token in the same slot: 40 of 40" not in out


@pytest.mark.parametrize(
    "change",
    [
        {"d2t": HEAD.vocab.d2t - 60},
        {"d2t": HEAD.vocab.d2t, "t2d": HEAD.vocab.t2d.roll(1)},
    ],
)
def test_a_map_that_is_none_or_contradicts_its_mask_is_wrong(stored, capsys, change):
    assert main(["audit", stored("sound"), stored("broken", **change)]) == 1
    assert "B is wrong: d2t" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d2t": HEAD.vocab.d2t.bfloat16()}, "d2t is torch.bfloat16, which cannot hold"),
        ({"d2t": HEAD.vocab.d2t.half()}, "d2t is torch.float16, which cannot hold"),
        ({"d2t": HEAD.vocab.d2t[:30]}, "d2t is (30,), but config.json asks for (40,)"),
        ({"rope_parameters": {"rope_theta": 1e6}}, "rope_theta=1000000.0 contradict each other"),
        ({"norm_before_residual": True}, "norm_before_residual=True is not supported"),
    ],
)
def test_the_audit_refuses_what_the_loader_refuses(stored, capsys, change, message):
    broken = stored("broken", **change)
    assert main(["audit", broken, stored("sound")]) == 1
    assert message in capsys.readouterr().err
    with pytest.raises(ValueError, match=re.escape(message)):
        load_head(Path(broken))


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (
            {"rope_theta": None, "rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}},
            {"rope_theta": 1e5, "rope_parameters": {"rope_theta": 1e5, "rope_type": "default"}},
        ),
        (
            {"eagle_config": None, "eagle_aux_hidden_state_layer_ids": [1, 3, 5]},
            {
                "eagle_config": {
                    "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
                    "use_aux_hidden_state": True,
                }
            },
        ),
        ({"target_model_type": "llama"}, {"target_model_type": "llama"}),
        ({"rms_norm_eps": None, "layer_norm_eps": 1e-4}, {"rms_norm_eps": 1e-4}),
    ],
)
def test_a_moved_head_keeps_what_was_read(stored, tmp_path, settings, kept):
    head = stored("head", **settings)
    assert main(["remap", head, stored("map"), str(tmp_path / "out")]) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {name: config[name] for name in kept} == kept


def test_what_a_moved_head_leaves_open_is_said(stored, tmp_path, capsys):
    head = stored("head", rope_theta=None)
    assert main(["remap", head, head, str(tmp_path / "out")]) == 0
    assert "names no rope_theta, so 10000 is assumed" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "config.json").read_text()).get("rope_theta") is None
