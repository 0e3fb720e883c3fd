"""Heads as they are published, on the real embedded target: read right, or refused, or remarked."""

import json

import pytest

from drafters.eagle3.checkpoint import load_head, save_head
from drafters.eagle3.shipped import shipped
from pipeline.cell.cell import flat
from tests.drafters.eagle3.heads import random_head
from tests.pipeline.engine.torch.test_session import answer, check, prompt  # noqa: F401

IDS = "eagle_aux_hidden_state_layer_ids"
CELL = ("drafter=eagle3_scratch", "verify=graph_captured", "engine.threads=1")
LONG = "sampling.max_new_tokens=48"


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Write the shipped head in the published form, with another configuration."""
    root = tmp_path_factory.mktemp("heads")
    head = load_head(shipped("shipped:smollm2_scratch"))
    save_head(head, root / "head")
    plain = json.loads((root / "head" / "config.json").read_text())

    def write(name, *without, **changed):
        folder = root / name
        folder.mkdir()
        (folder / "model.safetensors").symlink_to(root / "head" / "model.safetensors")
        config = {k: v for k, v in plain.items() if k not in without} | changed
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return write


@pytest.fixture(scope="module")
def committed(prompt):  # noqa: F811
    def of(folder):
        return answer(prompt, *CELL, LONG, f"drafter.heads.smollm2_135m={folder}")[0].committed

    return of


@pytest.fixture(scope="module")
def unchanged(published, committed):
    return committed(published("unchanged"))


def test_a_rope_base_within_rope_parameters_drafts_as_one_at_the_top(
    published, committed, unchanged
):
    rope = {"rope_type": "default", "rope_theta": 1e5}
    assert committed(published("newer", "rope_theta", rope_parameters=rope)) == unchanged
    assumed = published("assumed", "rope_theta")
    assert committed(assumed) != unchanged, "the base matters to this head"
    noted = flat(check(*CELL, f"drafter.heads.smollm2_135m={assumed}"))["drafter.note"]
    assert "names no rope_theta, so 10000 is assumed" in noted


def test_layers_at_the_top_draft_as_those_within_eagle_config(published, committed, unchanged):
    layers = {IDS: [4, 10, 20]}
    top = committed(published("top", "eagle_config", **layers))
    assert top == committed(published("within", eagle_config=layers))
    assert top != unchanged, "the layers matter to this head"
    with pytest.raises(ValueError, match=rf"{IDS}=\[4, 10, 20\] and eagle_config\.{IDS}=\[1, 14, "):
        check(*CELL, f"drafter.heads.smollm2_135m={published('both', **layers)}")


def test_layers_in_the_input_convention_are_remarked_on_where_a_table_is_read(published):
    inputs = published("inputs", eagle_config={IDS: [2, 15, 27]})
    noted = flat(check(*CELL, f"drafter.heads.smollm2_135m={inputs}"))["drafter.note"]
    assert "its layers [2, 15, 27] look like the convention that names a layer's input" in noted
    assert "write [1, 14, 26] in eagle_config" in noted


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"eagle_config": {IDS: [1, 14, 29]}},
            r"layers \(2, 15, 30\): the target has 30; use",
        ),
        ({"norm_before_residual": True}, "norm_before_residual=True is not supported"),
        ({"fc_norm": True}, "fc_norm=True is not supported by the torch engine: use engine=sglang"),
    ],
)
def test_a_head_that_cannot_draft_for_the_target_is_refused_before_anything_starts(
    published, changed, message
):
    folder = published("-".join(changed), **changed)
    with pytest.raises(ValueError, match=message):
        check(*CELL, f"drafter.heads.smollm2_135m={folder}")


def test_a_head_of_another_target_is_refused_before_anything_starts(tmp_path):
    save_head(random_head(), tmp_path)
    with pytest.raises(ValueError, match=r"hidden_size=32, but the target has 576: this head was"):
        check(*CELL, f"drafter.heads.smollm2_135m={tmp_path}")
