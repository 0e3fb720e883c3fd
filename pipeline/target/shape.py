"""From a checkpoint's `config.json` to the shape we run, and from it to every tensor's shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.target.tokenizer import read_json
from verify.base import TargetShape

_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
# What our forward does not do: setting -> the values that mean "not used".
_UNUSED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", None),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "sliding_window": (None,),
    "quantization_config": (None,),
    "partial_rotary_factor": (1, None),
}


def read_shape(folder: Path) -> TargetShape:
    """Return the shape that a checkpoint folder's `config.json` describes.

    Raises:
        ValueError: There is no such file, a value is missing, or the model does something that
            a plain Llama does not.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no config.json; give the folder of a checkpoint")
    config = read_json(path)
    _refuse_what_we_do_not_run(config, path)
    try:
        return _shape(config)
    except KeyError as error:
        raise ValueError(f"{path}: {error.args[0]} is missing") from None


def tensor_shapes(shape: TargetShape) -> dict[str, tuple[int, ...]]:
    """Return every tensor of a Llama model by Hugging Face's name, with its shape."""
    hidden, ffn = shape.hidden_size, shape.intermediate_size
    query, key = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (key, hidden),
        "self_attn.v_proj": (key, hidden),
        "self_attn.o_proj": (hidden, query),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.vocab_size, hidden)}
    for index in range(shape.num_layers):
        shapes |= {f"model.layers.{index}.{name}.weight": size for name, size in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not shape.tie_word_embeddings:
        shapes["lm_head.weight"] = (shape.vocab_size, hidden)
    return shapes


def _refuse_what_we_do_not_run(config: dict[str, Any], path: Path) -> None:
    """Refuse other architectures and settings that change the forward."""
    architecture = (config.get("architectures") or ["none"])[0]
    if architecture not in _ARCHITECTURES:
        raise ValueError(
            f"{path}: architecture {architecture}; the torch engine runs"
            f" {' and '.join(_ARCHITECTURES)}: use engine=sglang for this target"
        )
    for name, unused in _UNUSED.items():
        if config.get(name) not in unused:
            raise ValueError(
                f"{path}: {name}={config[name]} is not supported by the torch engine:"
                " use engine=sglang for this target"
            )
    rope = _rope(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(
            f"{path}: rope scaling {kind!r} is not supported by the torch engine:"
            " use engine=sglang for this target"
        )


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    """Return the rope settings, which older and newer files keep under different names."""
    rope: dict[str, Any] = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope


def _shape(config: dict[str, Any]) -> TargetShape:
    heads = config["num_attention_heads"]
    return TargetShape(
        num_layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocab_size=config["vocab_size"],
        rope_theta=float(_rope(config).get("rope_theta") or config.get("rope_theta", 10_000.0)),
        rms_norm_eps=float(config["rms_norm_eps"]),
        max_positions=config["max_position_embeddings"],
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
    )
