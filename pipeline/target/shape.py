"""From a checkpoint's `config.json` to the shape we run, and from it to every tensor's shape."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pipeline.target.tokenizer import read_json
from verify.base import TargetShape

_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
_LARGEST = 2**31 - 1  # of any count in a model
_MOST_LAYERS = 10_000  # each is nine tensors to name before a file is opened
_LARGEST_FLOAT = sys.float_info.max  # a whole number may be larger, and then is no float
# What our forward does not do: setting -> the values that mean "not used".
_UNUSED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", None),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "sliding_window": (None,),
    "use_sliding_window": (False, None),
    "quantization_config": (None,),
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
    return shape_of(config, path)


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
    named = config.get("architectures") or ["none"]
    architecture = named[0] if isinstance(named, list) else named
    if architecture not in _ARCHITECTURES:
        raise ValueError(
            f"{path}: architecture {architecture}; the torch engine runs"
            f" {' and '.join(_ARCHITECTURES)}: use engine=sglang for this target"
        )
    off = {"sliding_window"} if config.get("use_sliding_window") is False else set()
    for name, unused in _UNUSED.items():
        if name not in off and config.get(name) not in unused:
            raise ValueError(
                f"{path}: {name}={config[name]} is not supported by the torch engine:"
                " use engine=sglang for this target"
            )
    for kind in _rope(config, ("rope_type", "type"), path):
        if kind != "default":
            raise ValueError(
                f"{path}: rope scaling {kind!r} is not supported by the torch engine:"
                " use engine=sglang for this target"
            )
    for factor in _rope(config, ("partial_rotary_factor",), path):
        if factor != 1:
            raise ValueError(
                f"{path}: partial_rotary_factor={factor} is not supported by the torch engine:"
                " use engine=sglang for this target"
            )


def _rope(config: dict[str, Any], names: tuple[str, ...], path: Path) -> list[Any]:
    """Return a rope setting from where older and newer files keep it: one value, or none.

    Raises:
        ValueError: Two places differ.
    """
    places = {name: config[name] for name in names if name in config}
    for group in ("rope_parameters", "rope_scaling"):
        rope = config.get(group)
        if isinstance(rope, dict):
            own = rope.get("full_attention")  # newer files may keep a set for each layer type
            rope = own if isinstance(own, dict) else rope
            places |= {f"{group}.{name}": rope[name] for name in names if name in rope}
    given = [(place, value) for place, value in places.items() if value is not None]
    for place, value in given[1:]:
        if value != given[0][1]:
            raise ValueError(
                f"{path}: {given[0][0]}={given[0][1]} and {place}={value} contradict each other;"
                " keep the one that the target was trained with"
            )
    return [value for _, value in given[:1]]


def shape_of(config: dict[str, Any], path: Path) -> TargetShape:
    """Return the shape that a configuration describes.

    Raises:
        ValueError: A value is missing, or is no number that a model can have.
    """
    heads, hidden = _count(config, "num_attention_heads", path), _count(config, "hidden_size", path)
    layers = _count(config, "num_hidden_layers", path)
    if layers > _MOST_LAYERS:
        raise ValueError(f"{path}: num_hidden_layers={layers}: at most {_MOST_LAYERS}")
    theta = _rope(config, ("rope_theta",), path)
    return TargetShape(
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=_count(config, "intermediate_size", path),
        num_heads=heads,
        num_kv_heads=_count(config, "num_key_value_heads", path, heads),
        head_dim=_count(config, "head_dim", path, max(hidden // heads, 1)),
        vocab_size=_count(config, "vocab_size", path),
        rope_theta=_positive(theta[0] if theta else 10_000.0, "rope_theta", path),
        rms_norm_eps=_positive(config.get("rms_norm_eps"), "rms_norm_eps", path),
        max_positions=_count(config, "max_position_embeddings", path),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
    )


def _count(config: dict[str, Any], name: str, path: Path, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if value is None:
        raise ValueError(f"{path}: {name} is missing")
    if type(value) is not int or value < 1:
        raise ValueError(f"{path}: {name}={_short(value)}: a whole number of 1 or more is needed")
    if value > _LARGEST:
        raise ValueError(f"{path}: {name}={_short(value)}: at most {_LARGEST}")
    return value


def _positive(value: Any, name: str, path: Path) -> float:
    if value is None:
        raise ValueError(f"{path}: {name} is missing")
    if type(value) not in (int, float) or not 0 < value <= _LARGEST_FLOAT:
        raise ValueError(f"{path}: {name}={_short(value)}: a finite number above 0 is needed")
    return float(value)


def _short(value: Any) -> str:
    """Return a value's text, cut where it would fill the line."""
    return f"{value!s:.60}"
