"""A plain Llama in a page of torch, in float64: what the native plan is compared with."""

import torch
from torch.nn.functional import silu

from tests.verify.native.dequantized import dequantize
from verify.base import TargetShape
from verify.native.packed import Packed

SHAPE = TargetShape(
    num_layers=3,
    hidden_size=96,
    intermediate_size=160,
    num_heads=3,
    num_kv_heads=1,
    head_dim=32,
    vocab_size=101,
    rope_theta=10000.0,
    rms_norm_eps=1e-5,
    max_positions=512,
    tie_word_embeddings=True,
)


def half(numbers):
    return numbers.half().view(torch.uint8).view(-1, 2)


def random_packed(fmt, rows, cols, generator):
    """A random matrix of a format; blocks of the quantised ones have their own scale and offset."""
    if fmt in {"f16", "bf16", "f32"}:
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[fmt]
        data = (torch.randn(rows, cols, generator=generator) / cols**0.5).to(dtype)
        return Packed(fmt, data.view(torch.uint8), rows, cols)
    blocks = rows * cols // 32
    size = 16 if fmt == "q4_1" else 32
    codes = torch.randint(0, 256, (blocks, size), generator=generator, dtype=torch.uint8)
    spread = 15 if fmt == "q4_1" else 127
    scale = (torch.rand(blocks, 1, generator=generator) + 0.5) * 3 / (spread * cols**0.5)
    parts = [half(scale), half(-scale * 7.5), codes] if fmt == "q4_1" else [half(scale), codes]
    return Packed(fmt, torch.cat(parts, 1).view(rows, -1).contiguous(), rows, cols)


def random_weights(shape, fmt="q4_1", seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden, wide = shape.hidden_size, shape.intermediate_size
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    sizes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (wide, hidden),
        "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide),
    }
    weights = {}
    for layer in range(shape.num_layers):
        prefix = f"model.layers.{layer}."
        for name, size in sizes.items():
            weights[f"{prefix}{name}.weight"] = random_packed(fmt, *size, generator)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = 1 + torch.randn(hidden, generator=generator) / 4
    weights["model.norm.weight"] = 1 + torch.randn(hidden, generator=generator) / 4
    weights["model.embed_tokens.weight"] = random_packed(
        "q8_0", shape.vocab_size, hidden, generator
    )
    if not shape.tie_word_embeddings:
        weights["lm_head.weight"] = torch.randn(shape.vocab_size, hidden, generator=generator)
    return weights


def dense(weights, name):
    weight = weights[f"{name}.weight"]
    return (dequantize(weight) if isinstance(weight, Packed) else weight).double()


def normalise(x, weight, eps):
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


def rotate(x, positions, theta):
    """Rotary embedding in the rotate-half layout; x is [T, heads, head_dim]."""
    half_dim = x.shape[-1] // 2
    angles = positions[:, None].double() * theta ** (-torch.arange(half_dim) / half_dim).double()
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., :half_dim], x[..., half_dim:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def forward(shape, weights, tokens, positions, mask):
    """Logits [T, V] and every layer's input, of all tokens at once under a [T, T] mask."""
    count, dim = len(tokens), shape.head_dim
    x, inputs = dense(weights, "model.embed_tokens")[tokens], []
    for layer in range(shape.num_layers):
        inputs.append(x)
        name = f"model.layers.{layer}."
        h = normalise(x, dense(weights, name + "input_layernorm"), shape.rms_norm_eps)
        q, k, v = (
            (h @ dense(weights, f"{name}self_attn.{part}_proj").T).view(count, -1, dim)
            for part in "qkv"
        )
        q, k = (rotate(part, positions, shape.rope_theta) for part in (q, k))
        k, v = (part.repeat_interleave(shape.num_heads // shape.num_kv_heads, 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) / dim**0.5
        share = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", share, v).reshape(count, -1)
        x = x + mixed @ dense(weights, name + "self_attn.o_proj").T
        h = normalise(x, dense(weights, name + "post_attention_layernorm"), shape.rms_norm_eps)
        gate, up = (h @ dense(weights, f"{name}mlp.{part}_proj").T for part in ("gate", "up"))
        x = x + (silu(gate) * up) @ dense(weights, name + "mlp.down_proj").T
    head = "model.embed_tokens" if shape.tie_word_embeddings else "lm_head"
    x = normalise(x, dense(weights, "model.norm"), shape.rms_norm_eps)
    return x @ dense(weights, head).T, inputs
