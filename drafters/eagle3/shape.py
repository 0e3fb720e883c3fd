"""The shape of an EAGLE-3 head: its `config.json`, and from it every tensor's name and shape.

Source: Li et al. 2025, EAGLE-3, https://arxiv.org/abs/2503.01840; names and settings are those of
the published heads, as SGLang's `LlamaForCausalLMEagle3` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ARCHITECTURE = "LlamaForCausalLMEagle3"
MAX_BREADTH = 32  # rows of one draft forward: the CPU kernels' buffers are as long
NUM_FEATURES = 3  # hidden states of the target that the head reads, side by side
# What this head does not do: setting -> the values that mean "not used".
_UNUSED: dict[str, tuple[Any, ...]] = {
    "num_hidden_layers": (1,),
    "hidden_act": ("silu", None),
    "bias": (False, None),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "tie_word_embeddings": (False, None),
    "fc_norm": (False, None),
    "use_aux_norm": (False, None),
    "norm_output": (False, None),
    "quantization_config": (None,),
}


@dataclass(frozen=True)
class HeadShape:
    """The shape of a head.

    Attributes:
        hidden_size: H, of the target and of the head.
        intermediate_size: Of the head's feed-forward block.
        vocab_size: V, of the target.
        draft_vocab_size: D, the tokens that the head can propose.
        rope_theta: Base of the rotary position embedding (rotate-half layout).
        max_positions: Written to the configuration; engines use the target's.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    draft_vocab_size: int
    rope_theta: float
    rms_norm_eps: float
    max_positions: int


def tensor_shapes(shape: HeadShape) -> dict[str, tuple[int, ...]]:
    """Return every trained tensor by its published name, with its shape."""
    hidden, ffn = shape.hidden_size, shape.intermediate_size
    query, key = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    return {
        "fc.weight": (hidden, NUM_FEATURES * hidden),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.self_attn.q_proj.weight": (query, 2 * hidden),
        "midlayer.self_attn.k_proj.weight": (key, 2 * hidden),
        "midlayer.self_attn.v_proj.weight": (key, 2 * hidden),
        "midlayer.self_attn.o_proj.weight": (hidden, query),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        "midlayer.mlp.gate_proj.weight": (ffn, hidden),
        "midlayer.mlp.up_proj.weight": (ffn, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, ffn),
        "norm.weight": (hidden,),
        "lm_head.weight": (shape.draft_vocab_size, hidden),
    }


def read_config(config: dict[str, Any], source: str) -> tuple[HeadShape, tuple[int, ...]]:
    """Return a head's shape and the layer ids that its configuration names, if it names any.

    Raises:
        ValueError: It is another kind of head, or a setting is missing; the text names it.
    """
    architecture = (config.get("architectures") or ["none"])[0]
    if architecture != ARCHITECTURE:
        raise ValueError(
            f"{source}: architecture {architecture}, an EAGLE-3 head is {ARCHITECTURE};"
            " use engine=sglang for heads of other kinds"
        )
    eagle = config.get("eagle_config") or {}
    _refuse_what_we_do_not_run(config | eagle, source)
    try:
        return _shape(config), _layer_ids(eagle, source)
    except KeyError as error:
        raise ValueError(f"{source}: {error.args[0]} is missing") from None


def write_config(shape: HeadShape, layer_ids: tuple[int, ...], dtype: str) -> dict[str, Any]:
    """Return the configuration of a head, as SGLang reads it.

    Args:
        shape: The head's shape.
        layer_ids: Layers whose outputs it reads; none leaves the choice to the engine, which takes
            an empty list at its word and captures nothing.
        dtype: Of the weights.
    """
    layers = {"eagle_aux_hidden_state_layer_ids": list(layer_ids)} if layer_ids else {}
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "vocab_size": shape.vocab_size,
        "draft_vocab_size": shape.draft_vocab_size,
        "rope_theta": shape.rope_theta,
        "rms_norm_eps": shape.rms_norm_eps,
        "max_position_embeddings": shape.max_positions,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": dtype,
        "eagle_config": {**layers, "use_aux_hidden_state": True},
    }


def capture_layers(layer_ids: tuple[int, ...], num_layers: int) -> tuple[int, ...]:
    """Return the target layers whose inputs the head reads.

    A configuration names layers whose *outputs* are read (Llama and its relatives in SGLang), so
    that id n is the input of layer n + 1. Without ids it is the inputs of layers 2, half and last
    but two.

    Raises:
        ValueError: The target lacks a layer, or two of the three are the same.
    """
    layers = tuple(layer + 1 for layer in layer_ids)
    layers = layers or (2, num_layers // 2, num_layers - 3)
    if len(set(layers)) != NUM_FEATURES or list(layers) != sorted(layers):
        raise ValueError(
            f"the head reads the inputs of layers {layers} of a target of {num_layers}:"
            f" {NUM_FEATURES} different, ascending ones are needed; name them in the head's"
            " eagle_config.eagle_aux_hidden_state_layer_ids (input's layer minus one)"
        )
    if not 0 <= layers[0] <= layers[-1] < num_layers:
        raise ValueError(
            f"the head reads the inputs of layers {layers}: the target has {num_layers};"
            " use a head that was trained for this target"
        )
    return layers


def _layer_ids(eagle: dict[str, Any], source: str) -> tuple[int, ...]:
    ids = tuple(eagle.get("eagle_aux_hidden_state_layer_ids") or ())
    if ids and (len(ids) != NUM_FEATURES or len(set(ids)) != len(ids)):
        raise ValueError(
            f"{source}: eagle_aux_hidden_state_layer_ids={list(ids)}: {NUM_FEATURES} different"
            " layers are needed, or the input of fc would shrink"
        )
    return ids


def _refuse_what_we_do_not_run(config: dict[str, Any], source: str) -> None:
    for name, unused in _UNUSED.items():
        if config.get(name, unused[0]) not in unused:
            raise ValueError(
                f"{source}: {name}={config[name]} is not supported by the torch engine:"
                " use engine=sglang for this head"
            )
    if config.get("norm_before_fc") or config.get("use_aux_hidden_state") is False:
        raise ValueError(
            f"{source}: a head without plain auxiliary hidden states; use engine=sglang for it"
        )
    rope = config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise ValueError(
            f"{source}: rope scaling is not supported: use engine=sglang for this head"
        )
    if config.get("target_hidden_size", config.get("hidden_size")) != config.get("hidden_size"):
        raise ValueError(
            f"{source}: target_hidden_size={config['target_hidden_size']} differs from"
            f" hidden_size={config['hidden_size']}: use engine=sglang for this head"
        )


def _shape(config: dict[str, Any]) -> HeadShape:
    heads = config["num_attention_heads"]
    return HeadShape(
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocab_size=config["vocab_size"],
        draft_vocab_size=config.get("draft_vocab_size") or config["vocab_size"],
        rope_theta=float(config.get("rope_theta", 10_000.0)),
        rms_norm_eps=float(config["rms_norm_eps"]),
        max_positions=config.get("max_position_embeddings", 2048),
    )
