"""The structures that step.c reads, field by field as plan.h declares them."""

from __future__ import annotations

import ctypes

from verify.native.packed import CWeight

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
PROJECTIONS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


class CLayer(ctypes.Structure):
    """`Layer` of plan.h."""

    _fields_ = (
        *((name.rpartition(".")[2], CWeight) for name in PROJECTIONS),
        ("input_norm", _POINTER),
        ("post_norm", _POINTER),
    )


_SIZES = [
    "num_layers",
    "hidden",
    "intermediate",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "slots",
    "threads",
    "max_rows",
    "num_captured",
]
_BUFFERS = ["query", "mixed", "delta", "gated", "lifted", "logits", "scratch", "bests", "tops"]


class CPlan(ctypes.Structure):
    """`Plan` of plan.h."""

    _fields_ = (
        *((name, _NUMBER) for name in _SIZES),
        ("eps", ctypes.c_double),
        ("captured", _POINTER),
        ("layers", _POINTER),
        ("embedding", CWeight),
        ("head", CWeight),
        *((name, _POINTER) for name in ("final_norm", "cosines", "sines", "keys", "values")),
        *((name, _POINTER) for name in _BUFFERS),
    )


class CStep(ctypes.Structure):
    """`Step` of plan.h."""

    _fields_ = (
        ("tokens", _POINTER),
        ("positions", _POINTER),
        ("mask", _POINTER),
        ("rows", _NUMBER),
        ("start", _NUMBER),
        ("first_logit", _NUMBER),
        ("features", _POINTER),
        ("best", _POINTER),
        ("margin", _POINTER),
    )
