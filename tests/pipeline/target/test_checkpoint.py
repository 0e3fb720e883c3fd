import json

import pytest
import torch
from safetensors.torch import save_file

from pipeline.target.checkpoint import Checkpoint
from pipeline.target.random_checkpoint import RandomCheckpoint
from pipeline.target.shape import tensor_shapes
from verify.base import TargetShape

SHAPE = TargetShape(
    num_layers=2,
    hidden_size=64,
    intermediate_size=96,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=50,
    rope_theta=10_000.0,
    rms_norm_eps=1e-5,
    max_positions=128,
    tie_word_embeddings=False,
)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
}


def write(folder, config=None, tensors=None):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | (config or {})))
    save_file(tensors or RandomCheckpoint(SHAPE).tensors(), folder / "model.safetensors")
    return folder


def test_a_sound_checkpoint_gives_its_shape_and_its_tensors(tmp_path):
    checkpoint = Checkpoint(write(tmp_path))
    assert checkpoint.shape() == SHAPE
    assert checkpoint.names == tuple(tensor_shapes(SHAPE))
    name = "model.layers.1.mlp.down_proj.weight"
    assert torch.equal(checkpoint.tensor(name), RandomCheckpoint(SHAPE).tensor(name))
    assert checkpoint.packed() is None


def test_newer_files_keep_the_rope_base_elsewhere(tmp_path):
    config = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}
    assert Checkpoint(write(tmp_path, config)).shape().rope_theta == 5e5


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": 5e5, "rope_parameters": {"rope_theta": 500000, "rope_type": "default"}},
        {"rope_scaling": {"rope_theta": 5e5, "rope_type": "default"}},
        {"rope_parameters": {"full_attention": {"rope_theta": 5e5}, "other": {"rope_theta": 1e4}}},
        {"rope_theta": 5e5, "rope_scaling": None, "rope_parameters": None},
    ],
)
def test_the_rope_base_is_read_from_every_place_that_keeps_it(tmp_path, config):
    assert Checkpoint(write(tmp_path, config)).shape().rope_theta == 5e5


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}},
            r"rope_theta=10000\.0 and rope_parameters\.rope_theta=500000\.0 contradict each other",
        ),
        (
            {"rope_scaling": {"type": "default", "rope_type": "linear"}},
            r"rope_scaling\.rope_type=linear and rope_scaling\.type=default contradict each other",
        ),
        (
            {"partial_rotary_factor": 1.0, "rope_parameters": {"partial_rotary_factor": 0.5}},
            r"partial_rotary_factor=1\.0 and rope_parameters\.partial_rotary_factor=0\.5 contra",
        ),
        ({"hidden_size": "64"}, "hidden_size=64: a whole number of 1 or more is needed"),
        ({"num_attention_heads": 0}, "num_attention_heads=0: a whole number of 1 or more"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps=nan: a finite number above 0 is needed"),
        ({"rope_theta": True}, "rope_theta=True: a finite number above 0 is needed"),
    ],
)
def test_places_that_differ_and_numbers_that_are_none_are_refused(tmp_path, config, message):
    with pytest.raises(ValueError, match=message):
        Checkpoint(write(tmp_path, config))


def test_a_window_that_is_switched_off_is_no_window(tmp_path):
    config = {"sliding_window": 4096, "use_sliding_window": False}
    assert Checkpoint(write(tmp_path, config)).shape() == SHAPE


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({}, "weight_map must name a file for each tensor"),
        ({"weight_map": ["a"]}, "weight_map must name a file for each tensor"),
        ({"weight_map": {"x": 3}}, "weight_map must name a file for each tensor"),
        ({"weight_map": {"x": "../a.safetensors"}}, "a.safetensors is outside of its folder"),
        ({"weight_map": {"lm_head.bias": "all.safetensors"}}, "the index promises lm_head.bias"),
        ({"weight_map": {"lm_head.weight": "b.safetensors"}}, "b.safetensors is missing"),
    ],
)
def test_an_index_that_does_not_hold_is_refused(tmp_path, index, message):
    write(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "all.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=message):
        Checkpoint(tmp_path)


def test_shards_are_read_through_their_index(tmp_path):
    tensors = RandomCheckpoint(SHAPE).tensors()
    names = list(tensors)
    write(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    shards = {"a.safetensors": names[:7], "b.safetensors": names[7:]}
    for file, inside in shards.items():
        save_file({name: tensors[name] for name in inside}, tmp_path / file)
    index = {"weight_map": {name: file for file, inside in shards.items() for name in inside}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    loaded = Checkpoint(tmp_path).tensors()
    assert all(torch.equal(loaded[name], tensors[name]) for name in names)

    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(ValueError, match=r"b.safetensors is missing"):
        Checkpoint(tmp_path)


def test_a_tied_head_may_be_stored_or_not(tmp_path):
    tied = {"tie_word_embeddings": True}
    tensors = RandomCheckpoint(SHAPE).tensors()
    with_head = Checkpoint(write(tmp_path, tied, tensors))
    del tensors["lm_head.weight"]
    without = Checkpoint(write(tmp_path, tied, tensors))
    assert with_head.names == without.names


def test_a_missing_tensor_is_named(tmp_path):
    tensors = RandomCheckpoint(SHAPE).tensors()
    del tensors["model.layers.1.self_attn.k_proj.weight"]
    with pytest.raises(ValueError, match=r"model.layers.1.self_attn.k_proj.weight is missing"):
        Checkpoint(write(tmp_path, tensors=tensors))


def test_an_unknown_tensor_is_named(tmp_path):
    tensors = RandomCheckpoint(SHAPE).tensors()
    tensors["model.layers.0.self_attn.q_norm.weight"] = torch.ones(16)
    with pytest.raises(ValueError, match=r"q_norm.weight is not part of a plain Llama model"):
        Checkpoint(write(tmp_path, tensors=tensors))


def test_a_tensor_of_another_shape_is_named_with_both_shapes(tmp_path):
    tensors = RandomCheckpoint(SHAPE).tensors()
    tensors["model.norm.weight"] = torch.ones(63)
    with pytest.raises(ValueError, match=r"model.norm.weight is \(63,\), but .* asks for \(64,\)"):
        Checkpoint(write(tmp_path, tensors=tensors))


def test_a_tensor_of_another_type_is_named(tmp_path):
    tensors = RandomCheckpoint(SHAPE).tensors()
    tensors["model.norm.weight"] = torch.ones(64, dtype=torch.int8)
    with pytest.raises(ValueError, match=r"model.norm.weight is I8; only F32, F16, BF16"):
        Checkpoint(write(tmp_path, tensors=tensors))


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, "architecture Qwen3ForCausalLM"),
        ({"architectures": ["Qwen2ForCausalLM"]}, "architecture Qwen2ForCausalLM"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope scaling 'llama3'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope scaling 'linear'"),
        ({"sliding_window": 4096}, "sliding_window=4096"),
        ({"use_sliding_window": True}, "use_sliding_window=True"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"hidden_act": "gelu"}, "hidden_act=gelu"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config="),
    ],
)
def test_what_our_forward_does_not_do_is_refused_by_name(tmp_path, config, named):
    with pytest.raises(ValueError, match=f"config.json: {named}.*use engine=sglang"):
        Checkpoint(write(tmp_path, config))


def test_a_missing_setting_is_named(tmp_path):
    write(tmp_path)
    config = {key: value for key, value in CONFIG.items() if key != "vocab_size"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config.json: vocab_size is missing"):
        Checkpoint(tmp_path)


def test_pickled_weights_are_refused(tmp_path):
    write(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"only pytorch_model.bin, which can run code"):
        Checkpoint(tmp_path)


def test_a_damaged_file_is_refused_in_one_line(tmp_path):
    file = write(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"model.safetensors is damaged \(.*\); copy it again"):
        Checkpoint(tmp_path)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no config.json"):
        Checkpoint(tmp_path)


def test_other_weights_have_another_digest(tmp_path):
    first = Checkpoint(write(tmp_path / "a")).digest
    tensors = RandomCheckpoint(SHAPE).tensors()
    assert Checkpoint(write(tmp_path / "b", tensors=tensors)).digest == first
    tensors["model.norm.weight"][3] = 2.0
    assert Checkpoint(write(tmp_path / "c", tensors=tensors)).digest != first


def test_random_weights_are_the_same_every_time_and_keep_activations_in_size():
    name = "model.layers.0.mlp.gate_proj.weight"
    tensor = RandomCheckpoint(SHAPE).tensor(name)
    assert torch.equal(tensor, RandomCheckpoint(SHAPE).tensor(name))
    assert tensor.shape == (96, 64)
    # 96 outputs of variance 1: their mean square is within 5 sigma, 5 * sqrt(2 / 96), of 1.
    outputs = tensor @ torch.ones(64)
    assert outputs.square().mean().item() == pytest.approx(1.0, abs=0.72)
    with pytest.raises(ValueError, match="random weights have no tokenizer"):
        RandomCheckpoint(SHAPE).tokenizer()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000: at most 10000"),
        ({"vocab_size": 10**30}, "vocab_size=1000000000000000000000000000000: at most"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps=1000"),
        ({"architectures": {"a": 1}}, "architecture {'a': 1}"),
        ({"rope_scaling": {"full_attention": 3, "type": "yarn"}}, "rope scaling 'yarn'"),
    ],
)
def test_absurd_settings_are_refused_at_once(tmp_path, config, message):
    with pytest.raises(ValueError, match=message) as refusal:
        Checkpoint(write(tmp_path, config))
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("part", ["/etc/passwd", "a" * 5000, "a\x00b", "", "..", "link"])
def test_a_shard_that_leaves_its_folder_is_refused(tmp_path, part):
    folder = write(tmp_path / "own")
    (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    (folder / "link").symlink_to(tmp_path / "outside.safetensors")
    index = json.dumps({"weight_map": {"lm_head.weight": part}})
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ValueError, match=r"outside of its folder|a link out of|is missing") as said:
        Checkpoint(folder)
    assert len(str(said.value)) < 500


def test_shards_in_the_hubs_cache_are_links_and_are_read(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    snapshot.parent.mkdir()
    write(snapshot)
    blobs.mkdir()
    (snapshot / "model.safetensors").rename(blobs / "0123")
    (snapshot / "part.safetensors").symlink_to("../../blobs/0123")
    index = {"weight_map": dict.fromkeys(tensor_shapes(SHAPE), "part.safetensors")}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    assert len(Checkpoint(snapshot).tensors()) == len(tensor_shapes(SHAPE))
