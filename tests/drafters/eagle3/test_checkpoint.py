"""A head's folder: what SGLang would read wrong without a word is refused with the fix."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from drafters.eagle3 import shipped
from drafters.eagle3.checkpoint import check_fits, load_head, save_compact, save_head
from drafters.eagle3.drafter import Eagle3
from drafters.eagle3.shape import capture_layers
from drafters.vocab.load import read_map
from tests.drafters.eagle3.heads import SHAPE, random_head
from tests.drafters.eagle3.tiny import SHAPE as TARGET

HEAD = random_head()


@pytest.fixture
def folder(tmp_path):
    save_head(HEAD, tmp_path)
    return tmp_path


def change(folder, **tensors):
    """Write the head's file with tensors changed; None drops one."""
    path = folder / "model.safetensors"
    stored = {k: v.clone() for k, v in load_file(path).items()} | tensors
    save_file({k: v for k, v in stored.items() if v is not None}, path)


def configure(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def test_names_shapes_and_maps_are_the_published_ones(folder):
    stored = load_file(folder / "model.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in stored.items()} == {
        "fc.weight": (32, 96),
        "midlayer.input_layernorm.weight": (32,),
        "midlayer.hidden_norm.weight": (32,),
        "midlayer.self_attn.q_proj.weight": (64, 64),
        "midlayer.self_attn.k_proj.weight": (32, 64),
        "midlayer.self_attn.v_proj.weight": (32, 64),
        "midlayer.self_attn.o_proj.weight": (32, 64),
        "midlayer.post_attention_layernorm.weight": (32,),
        "midlayer.mlp.gate_proj.weight": (64, 32),
        "midlayer.mlp.up_proj.weight": (64, 32),
        "midlayer.mlp.down_proj.weight": (32, 64),
        "norm.weight": (32,),
        "lm_head.weight": (40, 32),
        "d2t": (40,),
        "t2d": (96,),
    }
    assert stored["lm_head.weight"].dtype == torch.bfloat16
    assert torch.equal(stored["d2t"] + torch.arange(40), HEAD.vocab.ids)
    assert stored["t2d"].dtype == torch.bool
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["draft_vocab_size"] == 40
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]


def test_a_head_without_layers_of_its_own_leaves_them_to_the_engine(tmp_path):
    save_head(random_head(capture_ids=()), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["eagle_config"] == {"use_aux_hidden_state": True}
    assert load_head(tmp_path).capture_ids == ()


def test_a_head_comes_back_as_it_was_saved(folder):
    head = load_head(folder)
    assert head.shape == HEAD.shape
    assert head.vocab.same_as(HEAD.vocab)
    for name, tensor in HEAD.tensors.items():
        assert torch.equal(head.tensors[name], tensor.bfloat16())


def test_the_other_names_of_the_layer_and_an_embedding_are_taken(folder):
    stored = load_file(folder / "model.safetensors")
    renamed = {k.replace("midlayer.", "layers.0."): v for k, v in stored.items()}
    renamed["embed_tokens.weight"] = torch.zeros(96, 32)
    save_file(renamed, folder / "model.safetensors")
    assert torch.equal(load_head(folder).tensors["fc.weight"], stored["fc.weight"])


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"fc.weight": None}, r"tensor fc\.weight is missing"),
        (
            {"fc.bias": torch.zeros(32)},
            r"tensor fc\.bias is not part of an EAGLE-3 head .* skip it",
        ),
        ({"fc.weight": torch.zeros(32, 64)}, r"fc\.weight is \(32, 64\), but config.json asks for"),
        ({"norm.weight": torch.ones(32).int()}, r"norm\.weight is torch.int32; only float32"),
        ({"d2t": None}, "d2t is missing, but draft_vocab_size=40 is below vocab_size=96"),
        (
            {"d2t": HEAD.vocab.ids},
            r"d2t holds token ids, engines read it as offsets: store d2t - a",
        ),
        ({"d2t": torch.arange(40)}, r"d2t is 0, 1, 2, …, which engines read as token 2i for slot"),
        ({"d2t": HEAD.vocab.d2t[:39]}, r"d2t is \(39,\), but config.json asks for \(40,\)"),
        ({"t2d": ~HEAD.vocab.t2d}, "t2d marks 56 tokens that are not the 40 of d2t"),
        ({"d2t": HEAD.vocab.d2t.bfloat16()}, r"d2t is torch\.bfloat16, which cannot hold a vocab"),
        ({"d2t": HEAD.vocab.d2t.float()}, r"d2t is torch\.float32, which cannot hold a vocabular"),
        ({"d2t": HEAD.vocab.d2t > 0}, r"d2t is torch\.bool, which cannot hold a vocabulary's num"),
        ({"d2t": HEAD.vocab.d2t[None]}, r"d2t is \(1, 40\), but config.json asks for \(40,\)"),
        ({"d2t": HEAD.vocab.d2t - 60}, "d2t gives tokens out of range, or one token twice"),
        ({"t2d": HEAD.vocab.t2d.half()}, r"t2d is torch\.float16, a mask of bools is needed"),
        ({"t2d": HEAD.vocab.t2d[:95]}, r"t2d is \(95,\), but config.json asks for \(96,\)"),
        (
            {"midlayer.self_attn.q_norm.weight": torch.ones(16)},
            r"tensor midlayer\.self_attn\.q_norm\.weight is not part of an EAGLE-3 head",
        ),
        (
            {"midlayer.self_attn.q_proj.bias": torch.ones(64)},
            r"tensor midlayer\.self_attn\.q_proj\.bias is not part of",
        ),
        ({"model.norm.weight": torch.ones(32)}, r"two tensors are norm\.weight; remove one"),
    ],
)
def test_wrong_tensors_are_refused_by_name(folder, tensors, message):
    change(folder, **tensors)
    with pytest.raises(ValueError, match=message):
        load_head(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "architecture LlamaForCausalLM, an EAGLE-3 head"),
        ({"num_hidden_layers": 2}, "num_hidden_layers=2 is not supported by the torch engine"),
        ({"target_hidden_size": 64}, "target_hidden_size=64 beside hidden_size=32 is not s"),
        ({"bias": True}, "bias=True is not supported"),
        ({"fc_norm": True}, "fc_norm=True is not supported"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 1, 2]}},
            r"eagle_aux_hidden_state_layer_ids=\[1, 1, 2\]: 3 different layers",
        ),
        (
            {"eagle_config": {"use_aux_hidden_state": False}},
            "eagle_config.use_aux_hidden_state=False is not supp",
        ),
    ],
)
def test_heads_of_other_kinds_are_refused_by_setting(folder, settings, message):
    configure(folder, **settings)
    with pytest.raises(ValueError, match=message):
        load_head(folder)


def test_damaged_files_are_refused(folder):
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        load_head(folder)
    save_head(HEAD, folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load_head(folder)
    path.unlink()
    with pytest.raises(ValueError, match=r"has no model\.safetensors \(no weights\)"):
        load_head(folder)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int64])
def test_a_map_of_any_whole_numbers_is_taken(folder, dtype):
    change(folder, d2t=HEAD.vocab.d2t.to(dtype), t2d=HEAD.vocab.t2d.to(torch.uint8))
    assert load_head(folder).vocab.same_as(HEAD.vocab)
    assert read_map(folder).same_as(HEAD.vocab)


def shard(folder):
    """Split the weights over two files and an index; return the index."""
    stored = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, files = sorted(stored), ("model-00001-of-00002", "model-00002-of-00002")
    parts = dict(zip(files, (names[::2], names[1::2]), strict=True))
    for file, part in parts.items():
        save_file({name: stored[name] for name in part}, folder / f"{file}.safetensors")
    return {name: f"{file}.safetensors" for file, part in parts.items() for name in part}


def test_a_head_in_shards_is_read_through_its_index(folder):
    whole, index = load_head(folder), {"weight_map": shard(folder)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    head = load_head(folder)
    assert all(torch.equal(head.tensors[name], whole.tensors[name]) for name in whole.tensors)
    assert read_map(folder).same_as(HEAD.vocab)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"norm.bias": "model-00001-of-00002.safetensors"}, "the index promises norm.bias, which"),
        ({"norm.weight": "model-00003.safetensors"}, "has no model-00003.safetensors, which model"),
        (
            {"norm.weight": "../model.safetensors"},
            r"\.\./model.safetensors is outside of its folder",
        ),
        ({"norm.weight": 3}, "weight_map must name a file for each tensor"),
    ],
)
def test_an_index_that_does_not_hold_is_refused(folder, changed, message):
    index = {"weight_map": shard(folder) | changed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=message):
        load_head(folder)


def test_pickled_weights_are_named_and_not_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"only pytorch_model\.bin, which can run code when it is"):
        load_head(folder)


def test_a_served_head_may_do_what_the_torch_engine_does_not(folder):
    configure(folder, fc_norm=True)
    drafter(heads={"t": str(folder)}).check()
    with pytest.raises(ValueError, match="fc_norm=True is not supported by the torch engine"):
        drafter(heads={"t": str(folder)}).check(local=True)
    change(folder, d2t=HEAD.vocab.ids)
    with pytest.raises(ValueError, match="d2t holds token ids, engines read it as offsets"):
        drafter(heads={"t": str(folder)}).check()


def test_a_served_head_whose_layers_stand_where_sglang_does_not_look_is_refused(folder):
    ids = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    configure(folder, eagle_config=None, **ids)
    drafter(heads={"t": str(folder)}).check(local=True)
    with pytest.raises(ValueError, match=r"SGLang reads eagle_aux_\S+ within eagle_config alone"):
        drafter(heads={"t": str(folder)}).check()
    save_head(load_head(folder), folder / "moved")
    drafter(heads={"t": str(folder / "moved")}).check()


def test_a_hub_head_is_checked_as_far_as_it_was_fetched(folder, monkeypatch):
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache", lambda *_, **__: str(folder / "config.json")
    )
    weights = (folder / "model.safetensors").rename(folder / "later")
    configure(folder, rope_theta=None)
    drafter().check()
    assert "names no rope_theta, so 10000 is assumed" in drafter().note
    configure(folder, norm_before_residual=True)
    with pytest.raises(ValueError, match="norm_before_residual=True is not supported"):
        drafter().check()
    configure(folder, norm_before_residual=False)
    weights.rename(folder / "model.safetensors")
    change(folder, d2t=HEAD.vocab.ids)
    with pytest.raises(ValueError, match="d2t holds token ids"):
        drafter().check()


def test_a_head_of_another_target_is_refused():
    check_fits(SHAPE, TARGET, "head")
    with pytest.raises(ValueError, match="head: vocab_size=96, but the target has 97"):
        check_fits(SHAPE, type(TARGET)(**vars(TARGET) | {"vocab_size": 97}), "head")


def test_layer_ids_name_outputs_and_the_default_names_inputs():
    assert capture_layers((1, 14, 26), 30) == (2, 15, 27)
    assert capture_layers((), 30) == (2, 15, 27)
    with pytest.raises(ValueError, match=r"the inputs of layers \(2, 2, 2\) of a target of 5"):
        capture_layers((), 5)
    with pytest.raises(ValueError, match=r"layers \(2, 15, 31\): the target has 30; use a head"):
        capture_layers((1, 14, 30), 30)


def drafter(**settings) -> Eagle3:
    return Eagle3(**{"name": "e", "target": "t", "heads": {"t": "org/head"}} | settings)


def test_sglang_is_told_steps_and_breadth_and_not_the_number_of_tokens():
    assert drafter().sglang_arguments() == {
        "speculative-algorithm": "EAGLE3",
        "speculative-draft-model-path": "org/head",
        "speculative-num-steps": 3,
        "speculative-eagle-topk": 1,
    }
    tree = drafter(num_draft_tokens=7, breadth=4, depth=3).sglang_arguments()
    assert tree["speculative-num-steps"] == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_draft_tokens": 0}, "drafter.num_draft_tokens=0: must be 1 or more"),
        ({"depth": 2}, "drafter.depth=2: a chain"),
        ({"breadth": 33, "depth": 1}, "drafter.breadth=33: at most 32"),
        ({"breadth": 2}, r"drafter.depth=0: a tree \(drafter.breadth=2\) is 1 to"),
        ({"breadth": 2, "depth": 2, "num_draft_tokens": 7}, "has 6 candidates; widen or deepen it"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        drafter(**settings)


def test_a_missing_head_is_refused_before_anything_starts():
    with pytest.raises(
        ValueError, match=r"drafter\.heads\.t=org/head: no such folder; download th"
    ):
        drafter().check(local=True)
    drafter().check()  # SGLang fetches it
    with pytest.raises(ValueError, match=r"drafter\.heads\.t=/no/where: no such folder"):
        drafter(heads={"t": "/no/where"}).check()
    with pytest.raises(ValueError, match="drafter=e has no head for target=other: set"):
        drafter(target="other").check()


def test_a_drafter_names_its_head_and_a_stand_in_says_that_it_is_one():
    assert drafter(heads={"t": "/a/head"}).note == "e on t drafts with the head /a/head"
    assert ", a stand-in for the published one" in drafter(stand_ins=("t",)).note
    assert drafter(target="other").note == ""


def test_a_compact_head_is_within_a_rounding_whatever_its_channels_sizes(tmp_path):
    """Half a step of 1/127 of what a row and a column allow, and bfloat16's 2^-8 of the weight."""
    sizes = 10.0 ** torch.linspace(-3, 1, 96)
    tensors = HEAD.tensors | {"fc.weight": HEAD.tensors["fc.weight"] * sizes}
    save_compact(replace(HEAD, tensors=tensors), tmp_path)
    head = load_head(tmp_path)
    assert head.vocab.same_as(HEAD.vocab)
    for name, tensor in tensors.items():
        columns = tensor.abs().amax(dim=0) if tensor.dim() == 2 else tensor.abs()
        rows = (tensor / columns).abs().amax(dim=-1, keepdim=True)
        allowed = rows * columns * 0.501 / 127 + tensor.abs() * 2**-8
        assert (head.tensors[name].float() - tensor).abs().le(allowed).all(), name
    size = (tmp_path / "model.int8.safetensors").stat().st_size
    assert size < 1.5 * sum(tensor.numel() for tensor in tensors.values())


def test_a_shipped_head_is_published_for_sglang(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "HEADS", tmp_path / "heads")
    monkeypatch.setenv("SPECROI_CACHE", str(tmp_path / "cache"))
    save_compact(HEAD, tmp_path / "heads" / "small")
    assert shipped.names() == ["small"]
    ours = drafter(heads={"t": "shipped:small"})
    ours.check()
    path = ours.sglang_arguments()["speculative-draft-model-path"]
    published, compact = load_file(f"{path}/model.safetensors"), ours.load()
    assert torch.equal(published["lm_head.weight"], compact.tensors["lm_head.weight"])
    with pytest.raises(ValueError, match="shipped:other: no such folder"):
        drafter(heads={"t": "shipped:other"}).check()


def test_scales_that_do_not_fit_are_refused_before_they_spread(tmp_path):
    save_compact(HEAD, tmp_path)
    path = tmp_path / "model.int8.safetensors"
    large = {f"fc.weight.{side}": torch.ones(10**5) for side in ("rows", "columns")}
    save_file(load_file(path) | large, path)
    with pytest.raises(ValueError, match=r"int8\.safetensors: tensor fc\.weight does not go with"):
        load_head(tmp_path)


def test_a_rope_base_that_is_no_float_is_refused(folder):
    configure(folder, rope_theta=10**400)
    with pytest.raises(ValueError, match="rope_theta=1000"):
        load_head(folder)
