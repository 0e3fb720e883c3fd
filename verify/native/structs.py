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
_BUFFERS = ["query", "mixed", "delta", "gated", "lifted", "logits", "scratch", "tops", "ranks"]
# How ranks can sum, by the names of `verify.base.Proof`; the numbers are ranks.h's.
WAYS = {"none": 0, "gloo": 1, "shared_memory": 2, "fused": 3}
LIBRARY_SUM = ctypes.CFUNCTYPE(ctypes.c_int, _POINTER, _NUMBER)
TOP_BYTES = 16  # `Top` of ranks.h


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
        ("way", _NUMBER),
        ("sums", _POINTER),
    )


class CRanks(ctypes.Structure):
    """`Ranks` of ranks.h."""

    _fields_ = (
        *((name, _NUMBER) for name in ("rank", "world", "slot_floats", "timeout_ns")),
        *((name, _POINTER) for name in ("lost", "arrivals", "slots", "tops")),
        ("head_first", _NUMBER),
        ("number", ctypes.c_uint64),
        ("library", LIBRARY_SUM),
    )
