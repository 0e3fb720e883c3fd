"""A head's `config.json`: every setting from every place where published heads keep it.

One setting stands in several places of the heads that people publish: the rope base at the top or
within `rope_parameters`, the layers at the top or within `eagle_config`. A reader of one place
takes its default where the other was filled in, and the head drafts worse without a word. So all
places are read, two that differ are refused, and so is a setting that is not known here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drafters.eagle3.known_settings import (
    ALIASES,
    HARMLESS,
    LAYER_IDS,
    NOWHERE,
    READ,
    ROPE_NAMES,
    ROPE_UNUSED,
    SGLANG_ONLY,
)
from drafters.eagle3.shape import NUM_FEATURES, HeadShape
from drafters.json_object import json_object

ARCHITECTURE = "LlamaForCausalLMEagle3"
_EAGLE = "eagle_config"
_FULL = "full_attention"
_ROPES = ("rope_parameters", "rope_scaling")
_DEEPEST = 9  # groups within a rope; published heads have one
_ROPE_THETA = 10_000.0  # where a configuration names none, here and in every engine


@dataclass(frozen=True, eq=False)
class HeadConfig:
    """A head's configuration as it was read.

    Attributes:
        shape: The head's shape.
        layer_ids: Layers whose outputs it reads; empty for the convention's default ones.
        target_hidden_size: H of the target that it reads.
        sglang_only: The first setting that SGLang runs and this head does not; empty for none.
        assumed: What the configuration leaves open, or says in a way that looks mistaken, a clause
            each.
        stated: The configuration as the file holds it.
    """

    shape: HeadShape
    layer_ids: tuple[int, ...]
    target_hidden_size: int
    sglang_only: str
    assumed: tuple[str, ...]
    stated: Mapping[str, Any]

    @property
    def hides_layers(self) -> bool:
        """Whether the layers' ids stand where SGLang does not look for them."""
        return bool(self.layer_ids) and LAYER_IDS not in (self.stated.get(_EAGLE) or {})


def head_config(folder: Path) -> HeadConfig:
    """Read the configuration of a head's folder.

    Raises:
        ValueError: There is none, or as `read_config`.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no config.json; give the folder of an EAGLE-3 head")
    return read_config(json_object(path), str(path))


def read_config(config: dict[str, Any], source: str) -> HeadConfig:
    """Return a head's settings.

    Args:
        config: The object that `config.json` holds.
        source: The file, for messages.

    Raises:
        ValueError: Another kind of head, two places that differ, a setting that is missing, not
            known or out of range; the text names it.
    """
    _check_architecture(config, source)
    settings = _Settings(config, source)
    settings.refuse_unknown()
    shape = _shape(settings)
    ids = _layer_ids(settings)
    return HeadConfig(
        shape=shape,
        layer_ids=ids,
        target_hidden_size=settings.count("target_hidden_size", shape.hidden_size),
        sglang_only=settings.sglang_only(),
        assumed=tuple(_assumed(settings, ids)),
        stated=config,
    )


def vocab_size(config: dict[str, Any], source: str) -> int:
    """Return the target's vocabulary size, of a configuration that need not be a whole head's.

    Raises:
        ValueError: It is missing, or two places differ.
    """
    return _Settings(config, source).count("vocab_size")


def write_config(
    shape: HeadShape,
    layer_ids: tuple[int, ...],
    dtype: str,
    stated: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the configuration of a head, as SGLang reads it.

    Args:
        shape: The head's shape.
        layer_ids: Layers whose outputs it reads; none leaves the choice to the engine, which takes
            an empty list at its word and captures nothing.
        dtype: Of the weights.
        stated: The configuration that the head was read with: its other settings are kept, and
            what it left open stays open.
    """
    layers = {LAYER_IDS: list(layer_ids)} if layer_ids else {}
    written = {
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
    }
    eagle = {**layers, "use_aux_hidden_state": True}
    if not stated:
        return written | {_EAGLE: eagle}
    return _kept(stated, written, eagle)


class _Settings:
    """Every setting of a configuration with the places that give it; all of a name agree."""

    def __init__(self, config: dict[str, Any], source: str) -> None:
        """Collect, and refuse two places that differ."""
        self.source = source
        self._found: dict[str, tuple[str, Any]] = {}
        for place, name, value in _places(config, source):
            before = self._found.get(name)
            if before is None:
                self._found[name] = (place, value)
            elif before[1] != value:
                raise ValueError(
                    f"{source}: {before[0]}={_short(before[1])} and {place}={_short(value)}"
                    " contradict each other; keep the one that the head was trained with"
                )

    def get(self, name: str, default: Any = None) -> Any:
        """Return a setting's value."""
        return self._found[name][1] if name in self._found else default

    def count(self, name: str, default: int | None = None) -> int:
        """Return a whole number of 1 or more; without a default it must be there."""
        value = self._required(name, default)
        if type(value) is not int or value < 1:
            raise ValueError(f"{self._told(name)}: a whole number of 1 or more is needed")
        return value

    def positive(self, name: str, default: float | None = None) -> float:
        """Return a finite number above 0; without a default it must be there."""
        value = self._required(name, default)
        if type(value) not in (int, float) or not 0 < value <= sys.float_info.max:
            raise ValueError(f"{self._told(name)}: a finite number above 0 is needed")
        return float(value)

    def refuse_unknown(self) -> None:
        """Refuse settings of another forward, and those that might be of one."""
        rope = {name for name in self._found if name.startswith("rope.")}
        for name in sorted(self._found.keys() - READ - HARMLESS - SGLANG_ONLY.keys() - rope):
            value = self.get(name)
            if name == "sliding_window" and self.get("use_sliding_window") is False:
                continue  # Qwen's way to say that its window is not used
            if name not in NOWHERE:
                raise ValueError(
                    f"{self._told(name)} is not a known setting of an EAGLE-3 head, and might"
                    " change its forward; remove it if it does not"
                )
            if value not in NOWHERE[name]:
                raise ValueError(
                    f"{self._told(name)} is not supported: engines read this architecture without"
                    " it, and would draft worse; use a head that was trained without it"
                )
        layers = self.get("layer_types")
        if layers is not None and not (
            isinstance(layers, list) and all(kind == _FULL for kind in layers)
        ):
            raise ValueError(
                f"{self._told('layer_types')} is not supported: engines run the head with full"
                " attention, and would draft worse; use a head that was trained with it"
            )

    def sglang_only(self) -> str:
        """Return the first setting, with its value, that SGLang alone runs."""
        for name, unused in SGLANG_ONLY.items():
            if name in self._found and self.get(name) not in unused:
                return self._text(name)
        if self.get("target_hidden_size", self.get("hidden_size")) != self.get("hidden_size"):
            return f"{self._text('target_hidden_size')} beside {self._text('hidden_size')}"
        for name in self._found:
            if name.startswith("rope.") and self.get(name) not in ROPE_UNUSED.get(name, ()):
                return self._text(name)
        return ""

    def _required(self, name: str, default: float | None) -> Any:
        value = self.get(name, default)
        if value is None:
            raise ValueError(f"{self.source}: {name} is missing")
        return value

    def _text(self, name: str) -> str:
        place, value = self._found[name]
        return f"{place}={_short(value)}"

    def _told(self, name: str) -> str:
        return f"{self.source}: {self._text(name)}"


def _places(config: dict[str, Any], source: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the place, the setting and the value of all that a configuration gives."""
    for place, group in (("", config), (f"{_EAGLE}.", _group(config, _EAGLE, source))):
        for key, value in group.items():
            if key not in (_EAGLE, *_ROPES) and value is not None:
                yield f"{place}{key}", ALIASES.get(key, key), value
        for name in _ROPES:
            yield from _rope(_group(group, name, source), f"{place}{name}", source)


def _rope(rope: dict[str, Any], place: str, source: str) -> Iterator[tuple[str, str, Any]]:
    """Yield a rope's settings; Transformers 5 keeps a set for each type of layer.

    The head's layer is of full attention, so another type's set is not read beside that one's.
    """
    for key, value in rope.items():
        if isinstance(value, dict) and key != _FULL and _FULL in rope:
            continue
        if isinstance(value, dict):
            if place.count(".") > _DEEPEST:
                raise ValueError(f"{source}: {_short(place)} is nested too deep")
            yield from _rope(_group(rope, key, source), f"{place}.{key}", source)
        elif value is not None and key not in HARMLESS:
            yield f"{place}.{key}", ROPE_NAMES.get(key, f"rope.{key}"), value


def _group(config: dict[str, Any], name: str, source: str) -> dict[str, Any]:
    value = config.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{source}: {name}={_short(value)} is not a JSON object")
    return value or {}


def _check_architecture(config: dict[str, Any], source: str) -> None:
    named = config.get("architectures") or ["none"]
    architecture = ", ".join(map(str, named)) if isinstance(named, list) else str(named)
    if "transformer_layer_config" in config or "peculator" in architecture:
        raise ValueError(
            f"{source}: a head in the speculators format (architecture {architecture}), which keeps"
            " its settings in transformer_layer_config and names layers by their inputs; write it"
            f" as {ARCHITECTURE}, its layers' ids by their outputs in {_EAGLE}.{LAYER_IDS}"
        )
    if architecture != ARCHITECTURE:
        raise ValueError(
            f"{source}: architecture {architecture}, an EAGLE-3 head is {ARCHITECTURE};"
            " heads of other kinds are not read"
        )


def _shape(settings: _Settings) -> HeadShape:
    hidden, heads = settings.count("hidden_size"), settings.count("num_attention_heads")
    if settings.get("head_dim") is None and hidden % heads:
        raise ValueError(
            f"{settings.source}: head_dim is missing, and hidden_size={hidden} is no multiple of"
            f" num_attention_heads={heads}"
        )
    vocab = settings.count("vocab_size")
    shape = HeadShape(
        hidden_size=hidden,
        intermediate_size=settings.count("intermediate_size"),
        num_heads=heads,
        num_kv_heads=settings.count("num_key_value_heads", heads),
        head_dim=settings.count("head_dim", hidden // heads),
        vocab_size=vocab,
        draft_vocab_size=settings.count("draft_vocab_size", vocab),
        rope_theta=settings.positive("rope_theta", _ROPE_THETA),
        rms_norm_eps=settings.positive("rms_norm_eps"),
        max_positions=settings.count("max_position_embeddings", 2048),
    )
    for large, small, rule in (
        ("num_heads", "num_kv_heads", shape.num_heads % shape.num_kv_heads == 0),
        ("vocab_size", "draft_vocab_size", shape.draft_vocab_size <= shape.vocab_size),
    ):
        if not rule:
            raise ValueError(
                f"{settings.source}: {small}={getattr(shape, small)} does not go with"
                f" {large}={getattr(shape, large)}"
            )
    if shape.head_dim % 2:
        raise ValueError(f"{settings.source}: head_dim={shape.head_dim}: rope needs an even number")
    return shape


def _layer_ids(settings: _Settings) -> tuple[int, ...]:
    ids = settings.get(LAYER_IDS, [])
    sound = isinstance(ids, list) and all(type(layer) is int for layer in ids)
    if not sound or (ids and (len(ids) != NUM_FEATURES or ids != sorted(set(ids)))):
        raise ValueError(
            f"{settings.source}: {LAYER_IDS}={_short(ids)}: {NUM_FEATURES} different"
            " layers are needed, in ascending order, or the input of fc would not fit"
        )
    return tuple(ids)


def _assumed(settings: _Settings, ids: tuple[int, ...]) -> Iterator[str]:
    """Yield what a reader of the figures must know of how the configuration was read."""
    if settings.get("rope_theta") is None:
        yield f"its config.json names no rope_theta, so {_ROPE_THETA:g} is assumed"
    if settings.get("hidden_act") is None:
        yield "its config.json names no hidden_act, so silu is assumed"
    if not ids:
        yield (
            "its config.json names no layers, so the inputs of the target's layers 2, half and last"
            " but two are assumed"
        )
    elif _look_like_inputs(ids):
        yield (
            f"its layers {list(ids)} look like the convention that names a layer's input, and are"
            " read as outputs, as SGLang does: if accept length disappoints, write"
            f" {[layer - 1 for layer in ids]} in {_EAGLE}.{LAYER_IDS}"
        )


def _look_like_inputs(ids: tuple[int, ...]) -> bool:
    """Whether the ids are the default layers of some target, named by their inputs.

    Those are 2, n // 2 and n - 3 for a target of n layers.
    """
    first, middle, last = ids
    return first == 2 and last + 3 in (2 * middle, 2 * middle + 1)


def _kept(
    stated: Mapping[str, Any], written: dict[str, Any], eagle: dict[str, Any]
) -> dict[str, Any]:
    """Return what was stated with the written settings in it, save those that were left open."""
    given = {name for _, name, _ in _places(dict(stated), "")}
    open_ = {"rope_theta", "hidden_act", "max_position_embeddings"} - given
    written = {name: value for name, value in written.items() if name not in open_}
    inner = {k: v for k, v in (stated.get(_EAGLE) or {}).items() if ALIASES.get(k, k) != LAYER_IDS}
    outer = {k: v for k, v in stated.items() if k not in ALIASES and k not in (_EAGLE, LAYER_IDS)}
    for name in inner.keys() & written.keys():
        inner[name] = written[name]
    inner = {name: value for name, value in inner.items() if name not in ALIASES}
    return outer | written | {_EAGLE: inner | eagle}


def _short(value: Any) -> str:
    """Return a value's text, cut where it would fill the line."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
