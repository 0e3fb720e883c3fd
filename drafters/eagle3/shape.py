"""The shape of an EAGLE-3 head: every tensor's name and shape, and the layers that it reads.

Source: Li et al. 2025, EAGLE-3, https://arxiv.org/abs/2503.01840; names and settings are those of
the published heads, as SGLang's `LlamaForCausalLMEagle3` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_BREADTH = 32  # rows of one draft forward: the CPU kernels' buffers are as long
NUM_FEATURES = 3  # hidden states of the target that the head reads, side by side


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
