"""Bind a checkpoint's tensors to the forward: dense anywhere, or packed as published on a CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from pipeline.engine.torch import ops
from pipeline.engine.torch.kernels import Kernels, kernels_for
from pipeline.engine.torch.llama import Layer, Matrix, Weights
from verify.base import TargetShape
from verify.native.linear import Linear
from verify.native.packed import Packed

# Tensors that the forward uses as one matrix, rows on top of each other.
QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


def dense_weights(
    shape: TargetShape,
    tensor: Callable[[str], Tensor],
    dtype: torch.dtype,
    device: torch.device,
    kernels: Kernels | None = None,
) -> Weights:
    """Return weights as plain matrices.

    Args:
        shape: The target's shape.
        tensor: Gives a tensor by its Hugging Face name.
        dtype: Type of the weights and of the residual stream.
        device: Where they go.
        kernels: What multiplies; by default the fastest for the device and type.
    """
    run = kernels or kernels_for(device, dtype)

    def load(name: str) -> Tensor:
        return tensor(name).to(device=device, dtype=dtype)

    def stacked(names: tuple[str, ...]) -> Tensor:
        return torch.cat([load(f"{name}.weight") for name in names])

    def matrix(*names: str) -> Matrix:
        return partial(run.linear, weight=stacked(names))

    def gated(*names: str) -> Matrix:
        return partial(run.gated, weight=stacked(names))

    embedding = load(EMBEDDING)
    head = embedding if shape.tie_word_embeddings else load(HEAD)
    return Weights(
        embedding=embedding,
        layers=_layers(shape, load, matrix, gated),
        norm=load(NORM),
        head=lambda x: run.logits(x, head),
        linear=f"{run.NAME} {str(dtype).removeprefix('torch.')}",
    )


def packed_weights(
    shape: TargetShape,
    tensor: Callable[[str], Tensor],
    packed: Mapping[str, Packed],
    library: ctypes.CDLL,
    threads: int,
) -> Weights:
    """Return weights whose matrices stay in their published blocks, unpacked inside the product.

    Norms and the rows of the embedding that a step looks up are read from the float32 tensors.
    """

    def matrix(*names: str) -> Matrix:
        return Linear(_stacked([packed[f"{name}.weight"] for name in names]), threads, library)

    def gated(*names: str) -> Matrix:
        both = matrix(*names)
        return lambda x: ops.silu_and_multiply(both(x))

    head = packed[EMBEDDING if shape.tie_word_embeddings else HEAD]
    formats = sorted({block.fmt for block in packed.values()})
    return Weights(
        embedding=tensor(EMBEDDING),
        layers=_layers(shape, tensor, matrix, gated),
        norm=tensor(NORM),
        head=Linear(head, threads, library),
        linear=f"native {'+'.join(formats)} weights, float32 sums",
    )


def _layers(
    shape: TargetShape,
    vector: Callable[[str], Tensor],
    matrix: Callable[..., Matrix],
    gated: Callable[..., Matrix],
) -> tuple[Layer, ...]:
    """Return every layer's weights."""

    def layer(prefix: str) -> Layer:
        return Layer(
            input_norm=vector(f"{prefix}.input_layernorm.weight"),
            qkv=matrix(*(f"{prefix}.{name}" for name in QKV)),
            output=matrix(f"{prefix}.self_attn.o_proj"),
            post_norm=vector(f"{prefix}.post_attention_layernorm.weight"),
            gated=gated(*(f"{prefix}.{name}" for name in GATE_UP)),
            down=matrix(f"{prefix}.mlp.down_proj"),
        )

    return tuple(layer(f"model.layers.{number}") for number in range(shape.num_layers))


def _stacked(blocks: list[Packed]) -> Packed:
    """Return one matrix of the blocks' rows.

    Raises:
        ValueError: The blocks differ in format or width.
    """
    if len({(block.fmt, block.cols) for block in blocks}) != 1:
        raise ValueError("matrices that a layer uses as one differ in format or width")
    data = torch.cat([block.data for block in blocks])
    return Packed(blocks[0].fmt, data, len(data), blocks[0].cols)
