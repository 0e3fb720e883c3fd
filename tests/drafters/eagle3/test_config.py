"""A head's configuration: every place of a setting, contradictions, and what is not known."""

import json

import pytest

from drafters.eagle3.checkpoint import load_head, save_head
from drafters.eagle3.config import head_config, read_config, write_config
from drafters.eagle3.drafter import Eagle3
from tests.drafters.eagle3.heads import SHAPE, random_head

IDS = "eagle_aux_hidden_state_layer_ids"
PLAIN = write_config(SHAPE, (0, 1, 2), "bfloat16")
# What Transformers, SpecForge and Model Optimizer write beside the settings of the forward.
PUBLISHED = {
    "_name_or_path": "org/head",
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": [2, 3],
    "initializer_range": 0.02,
    "max_window_layers": 36,
    "mlp_bias": False,
    "modal_type": "LLM",
    "pretraining_tp": 1,
    "quantization_config": None,
    "rope_scaling": None,
    "sliding_window": None,
    "target_model_type": "qwen3_moe",
    "transformers_version": "5.1.0",
    "use_cache": True,
    "use_sliding_window": False,
}
EXPORTED = {
    IDS: [0, 1, 2],
    "use_aux_hidden_state": True,
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
    "parallel_draft_heads_num_layers": None,
}


def without(*names, **changed):
    return {name: value for name, value in PLAIN.items() if name not in names} | changed


def read(config):
    return read_config(config, "config.json")


def refused(config, message):
    with pytest.raises(ValueError, match=message):
        read(config)


@pytest.mark.parametrize(
    "config",
    [
        without("rope_theta", rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
        without("rope_theta", rope_scaling={"rope_type": "default", "rope_theta": 5e5}),
        without("rope_theta", rope_parameters={"full_attention": {"rope_theta": 5e5}}),
        without(
            "rope_theta",
            rope_parameters={
                "full_attention": {"rope_theta": 5e5, "rope_type": "default"},
                "sliding_attention": {"rope_theta": 1e4, "rope_type": "linear", "factor": 8},
            },
            layer_types=["full_attention"],
        ),
        without("rope_theta", eagle_config={IDS: [0, 1, 2], "rope_theta": 500000}),
        without(rope_theta=5e5, rope_parameters={"type": "default", "rope_theta": 500000}),
        without(rope_theta=5e5, rope_scaling={"factor": 1.0, "rope_type": "default"}),
    ],
)
def test_the_rope_base_is_read_from_every_place_that_keeps_it(config):
    found = read(config)
    assert found.shape.rope_theta == 5e5
    assert not found.assumed
    assert not found.sglang_only


@pytest.mark.parametrize(
    "config",
    [
        without("eagle_config", **{IDS: [4, 10, 20]}),
        without(eagle_config={IDS: [4, 10, 20]}),
        without(eagle_config={IDS: [4, 10, 20]}, **{IDS: [4, 10, 20]}),
        without("eagle_config", aux_hidden_state_layer_ids=[4, 10, 20]),
    ],
)
def test_the_layers_are_read_from_every_place_that_keeps_them(config):
    assert read(config).layer_ids == (4, 10, 20)
    written = write_config(SHAPE, (4, 10, 20), "bfloat16", config)
    assert written["eagle_config"][IDS] == [4, 10, 20], "where SGLang looks"
    assert read(written).layer_ids == (4, 10, 20)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            without(**{IDS: [4, 10, 20]}),
            rf"{IDS}=\[4, 10, 20\] and eagle_config\.{IDS}=\[0, 1, 2\] contradict",
        ),
        (
            without(rope_theta=1e4, rope_parameters={"rope_theta": 1e5}),
            r"rope_theta=10000\.0 and rope_parameters\.rope_theta=100000\.0 contradict each other",
        ),
        (
            without(rope_scaling={"rope_type": "default", "type": "linear"}, rope_parameters=None),
            r"rope_scaling\.rope_type=default and rope_scaling\.type=linear contradict",
        ),
        (
            without(rope_parameters={"rope_theta": 3e4}, rope_scaling={"rope_theta": 2e4}),
            r"rope_theta=10000\.0 and rope_parameters\.rope_theta=30000\.0 contradict",
        ),
        (without(layer_norm_eps=1e-6), r"rms_norm_eps=1e-05 and layer_norm_eps=1e-06 contradict"),
        (without(dtype="float16"), "torch_dtype=bfloat16 and dtype=float16 contradict"),
        (
            without(eagle_config={"draft_vocab_size": 50, IDS: [0, 1, 2]}),
            r"draft_vocab_size=40 and eagle_config\.draft_vocab_size=50 contradict",
        ),
        (
            without(
                use_aux_hidden_state=False,
            ),
            r"use_aux_hidden_state=False and eagle_config\.use_aux_hidden_state=True contradict",
        ),
        (without(**{IDS: []}), rf"{IDS}=\[\] and eagle_config\.{IDS}=\[0, 1, 2\] contradict"),
    ],
)
def test_two_places_that_differ_are_refused_by_both_names(config, message):
    refused(config, message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"norm_before_residual": True}, "norm_before_residual=True is not supported"),
        (
            {"layer_types": ["sliding_attention"], "sliding_window": 512},
            "sliding_window=512 is not supported",
        ),
        ({"layer_types": ["sliding_attention"]}, "layer_types=.*is not supported"),
        ({"sliding_window": 512}, "sliding_window=512 is not supported"),
        ({"sliding_window": 512, "use_sliding_window": True}, "sliding_window=512 is not supp"),
        ({"rotary_pct": 0.25}, "rotary_pct=0.25 is not supported"),
        ({"rope_interleave": True}, "rope_interleave=True is not supported"),
        ({"parallel_drafting": True}, "parallel_drafting=True is not supported"),
        ({"use_qk_norm": True}, "use_qk_norm=True is not supported"),
        ({"position_embedding_type": "alibi"}, "position_embedding_type=alibi is not supported"),
        (
            {"eagle_config": {"use_mtp_layernorm": True}},
            r"eagle_config\.use_mtp_layernorm=True is not supported",
        ),
        ({"residual_multiplier": 0.22}, "residual_multiplier=0.22 is not a known setting"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping=30.0 is not a known setting"),
        ({"eagle_config": {"gate": "x"}}, r"eagle_config\.gate=x is not a known setting"),
        ({"mask_token_id": 7}, "mask_token_id=7 is not a known setting"),
    ],
)
def test_a_setting_of_another_forward_is_refused_by_name_for_every_engine(changed, message):
    refused(without(**changed), message)


@pytest.mark.parametrize(
    ("changed", "setting"),
    [
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "rope_parameters.partial_rotary_factor=0.5",
        ),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "rope_scaling.type=linear"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "llama3", "factor": 8.0}}},
            "rope_parameters.full_attention.rope_type=llama3",
        ),
        ({"rope_scaling": {"factor": 8.0}}, "rope_scaling.factor=8.0"),
        (
            {"rope_scaling": {"rope_type": "default", "mrope_section": [8, 4, 4]}},
            "rope_scaling.mrope_section=[8, 4, 4]",
        ),
        ({"rope_is_neox_style": False}, "rope_is_neox_style=False"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"mlp_bias": True}, "mlp_bias=True"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings=True"),
        ({"hidden_act": "gelu"}, "hidden_act=gelu"),
        ({"norm_before_fc": True}, "norm_before_fc=True"),
        ({"num_hidden_layers": 2}, "num_hidden_layers=2"),
        ({"eagle_config": {"norm_output": True}}, "eagle_config.norm_output=True"),
    ],
)
def test_what_sglang_runs_and_the_torch_engine_does_not_is_named(tmp_path, changed, setting):
    assert read(without(**changed)).sglang_only == setting
    save_head(random_head(), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(without(**changed)))
    with pytest.raises(ValueError, match="not supported by the torch engine: use engine=sglang"):
        load_head(tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (without(hidden_size="32"), "hidden_size=32: a whole number of 1 or more is needed"),
        (without(num_attention_heads=0), "num_attention_heads=0: a whole number"),
        (without(num_key_value_heads=3), "num_kv_heads=3 does not go with num_heads=4"),
        (without(draft_vocab_size=97), "draft_vocab_size=97 does not go with vocab_size=96"),
        (without("head_dim", num_attention_heads=5), "head_dim is missing, and hidden_size=32"),
        (without(head_dim=15), "head_dim=15: rope needs an even number"),
        (without(rope_theta=float("nan")), "rope_theta=nan: a finite number above 0"),
        (without(rope_theta="10000"), "rope_theta=10000: a finite number above 0"),
        (without("rms_norm_eps"), "rms_norm_eps is missing"),
        (without("vocab_size"), "vocab_size is missing"),
        (without(rope_scaling=[1]), r"rope_scaling=\[1\] is not a JSON object"),
        (without(eagle_config="x"), "eagle_config=x is not a JSON object"),
        (without(eagle_config={IDS: [0, 1]}), r"=\[0, 1\]: 3 different layers are needed"),
        (without(eagle_config={IDS: [2, 1, 0]}), "in ascending order"),
        (without(eagle_config={IDS: ["0", "1", "2"]}), "3 different layers are needed"),
        (without(eagle_config={IDS: 3}), "3 different layers are needed"),
        (without("architectures"), "architecture none, an EAGLE-3 head is"),
        (without(architectures="LlamaForCausalLM"), "architecture LlamaForCausalLM, an EAGLE-3"),
        (without(architectures=["Eagle3Speculator"]), "in the speculators format"),
        (
            {"transformer_layer_config": {"hidden_size": 32}, "architectures": ["E"]},
            r"speculators format \(architecture E\), which keeps its settings in transformer_l",
        ),
    ],
)
def test_what_cannot_be_a_head_is_refused_by_setting(config, message):
    refused(config, message)


def test_what_publishers_write_beside_the_forwards_settings_is_taken():
    found = read(without(**PUBLISHED, eagle_config=EXPORTED))
    assert found.shape == SHAPE
    assert not found.assumed
    assert not found.sglang_only


def test_a_window_that_is_switched_off_is_no_window():
    assert read(without(sliding_window=4096, use_sliding_window=False)).shape == SHAPE


def test_sizes_that_are_left_out_follow_from_the_others():
    shape = read(without("head_dim", "num_key_value_heads", "draft_vocab_size")).shape
    assert (shape.head_dim, shape.num_kv_heads, shape.draft_vocab_size) == (8, 4, 96)


@pytest.mark.parametrize(
    ("config", "clause"),
    [
        (without("rope_theta"), "names no rope_theta, so 10000 is assumed"),
        (without(rope_theta=None), "names no rope_theta, so 10000 is assumed"),
        (without("hidden_act"), "names no hidden_act, so silu is assumed"),
        (without("eagle_config"), "names no layers, so the inputs of the target's layers 2, half"),
        (without(eagle_config={IDS: []}), "names no layers"),
        (without(eagle_config={IDS: [2, 15, 27]}), r"write [1, 14, 26] in eagle_config.eagle_aux"),
        (without(eagle_config={IDS: [2, 18, 33]}), r"write [1, 17, 32] in"),
        (without("eagle_config", **{IDS: [2, 30, 58]}), r"write [1, 29, 57] in"),
    ],
)
def test_what_is_assumed_or_looks_mistaken_is_said_in_the_drafters_note(tmp_path, config, clause):
    (tmp_path / "config.json").write_text(json.dumps(config))
    note = Eagle3(name="e", target="t", heads={"t": str(tmp_path)}).note
    assert note.startswith(f"e on t drafts with the head {tmp_path}; its ")
    assert clause in note


@pytest.mark.parametrize("ids", [[1, 14, 26], [0, 1, 2], [2, 9, 20], [4, 10, 20]])
def test_layers_in_the_usual_convention_are_not_remarked_on(tmp_path, ids):
    (tmp_path / "config.json").write_text(json.dumps(without(eagle_config={IDS: ids})))
    note = Eagle3(name="e", target="t", heads={"t": str(tmp_path)}).note
    assert note == f"e on t drafts with the head {tmp_path}"


def test_a_damaged_configuration_is_left_to_the_check(tmp_path):
    (tmp_path / "config.json").write_text("[" * 100_000)
    assert ";" not in Eagle3(name="e", target="t", heads={"t": str(tmp_path)}).note
    with pytest.raises(ValueError, match=r"config\.json is nested too deep to be read"):
        head_config(tmp_path)


@pytest.mark.parametrize("left_open", ["rope_theta", "eagle_config", "hidden_act"])
def test_what_a_head_leaves_open_stays_open_when_it_is_written_again(tmp_path, left_open):
    save_head(random_head(capture_ids=()), tmp_path / "a")
    path = tmp_path / "a" / "config.json"
    config = {k: v for k, v in json.loads(path.read_text()).items() if k != left_open}
    path.write_text(json.dumps(config | {"target_model_type": "llama"}))
    save_head(load_head(tmp_path / "a"), tmp_path / "b")
    written = json.loads((tmp_path / "b" / "config.json").read_text())
    assert left_open == "eagle_config" or left_open not in written
    assert IDS not in written["eagle_config"]
    assert written["target_model_type"] == "llama"
    assert head_config(tmp_path / "b").assumed == head_config(tmp_path / "a").assumed != ()


def test_a_rewritten_head_holds_its_new_size_in_every_place():
    stated = without(eagle_config={IDS: [0, 1, 2], "draft_vocab_size": 40}, dtype="bfloat16")
    smaller = type(SHAPE)(**vars(SHAPE) | {"draft_vocab_size": 30})
    written = write_config(smaller, (0, 1, 2), "float16", stated)
    assert read(written).shape.draft_vocab_size == 30
    assert written["torch_dtype"] == "float16"
