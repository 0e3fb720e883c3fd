"""The captured draft on a CPU: fixed buffers, and a whole chain in one call of compiled code."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drafters.base import TargetInfo
from drafters.eagle3.checkpoint import Head
from drafters.eagle3.model import rotary_table
from drafters.eagle3.runner import Scored
from drafters.eagle3.shape import MAX_BREADTH, NUM_FEATURES, HeadShape

MAX_ROWS = MAX_BREADTH  # a chunk's activations stay in the second-level cache
_SOURCE = Path(__file__).parent / "draft_step.c"
_FORMATS = {torch.float16: 2, torch.bfloat16: 3, torch.float32: 4}  # formats.h
_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_LAYER = "midlayer."
_MATRICES = {
    "fc": "fc",
    "q": f"{_LAYER}self_attn.q_proj",
    "k": f"{_LAYER}self_attn.k_proj",
    "v": f"{_LAYER}self_attn.v_proj",
    "o": f"{_LAYER}self_attn.o_proj",
    "gate": f"{_LAYER}mlp.gate_proj",
    "up": f"{_LAYER}mlp.up_proj",
    "down": f"{_LAYER}mlp.down_proj",
    "head": "lm_head",
}
_NORMS = {
    "input_norm": f"{_LAYER}input_layernorm",
    "hidden_norm": f"{_LAYER}hidden_norm",
    "post_norm": f"{_LAYER}post_attention_layernorm",
    "final_norm": "norm",
}
_SIZES = ["hidden", "intermediate", "heads", "kv_heads", "head_dim", "draft_vocab", "slots"]
_BUFFERS = ["fused", "query", "mixed", "delta", "gated", "lifted", "logits", "scratch"]


class _Weight(ctypes.Structure):
    """`Weight` of formats.h."""

    _fields_ = (
        ("data", _POINTER),
        *((name, _NUMBER) for name in ("rows", "cols", "row_bytes", "format")),
    )


class _Head(ctypes.Structure):
    """`Head` of draft_step.c."""

    _fields_ = (
        *((name, _NUMBER) for name in (*_SIZES, "threads", "max_rows")),
        ("eps", ctypes.c_double),
        *((name, _Weight) for name in ("embedding", *_MATRICES)),
        *((name, _POINTER) for name in (*_NORMS, "cosines", "sines", "ids", "keys", "values")),
        *((name, _POINTER) for name in (*_BUFFERS, "bests", "tops")),
    )


class _Draft(ctypes.Structure):
    """`Draft` of draft_step.c."""

    _fields_ = (
        *((name, _POINTER) for name in ("tokens", "features", "hidden", "mask")),
        *((name, _NUMBER) for name in ("rows", "start", "span", "outputs", "length")),
        ("states", _POINTER),
        ("chain", _POINTER),
    )


class NativeRunner:
    """A head's forward in compiled code, batch 1."""

    def __init__(self, head: Head, target: TargetInfo, capacity: int) -> None:
        """Compile the code if need be, and fix every buffer.

        Args:
            head: The head.
            target: Its target; `compile` is there.
            capacity: The most rows, drafted ones included.

        Raises:
            ValueError: The head's sizes do not fill whole vectors.
        """
        assert target.compile is not None, "the caller chose this form because it is there"
        _check(head.shape)
        library = target.compile(_SOURCE)
        library.draft_scratch.restype = _NUMBER
        library.draft_scratch.argtypes = [_POINTER]
        library.draft_run.restype = None
        library.draft_run.argtypes = [_POINTER, _POINTER]
        self._run = library.draft_run
        self._shape, self._capacity, self._alive = head.shape, capacity, [head, target]
        self._head = self._fixed(head, target)
        scratch = torch.empty(target.threads, library.draft_scratch(ctypes.byref(self._head)))
        self._head.scratch = self._keep(scratch)

    def extend(self, tokens: list[int], features: Tensor, start: int) -> Scored:
        """Read rows with features, [N, 3 * H]; return the last one's state, [1, H]."""
        features = self._checked(features)
        states = torch.empty(1, self._shape.hidden_size)
        self._call(tokens, start, len(tokens), 1, features=features, states=states)
        return Scored(states, self._logits[:1])

    def step(self, tokens: list[int], hidden: Tensor, start: int, mask: Tensor) -> Scored:
        """Run rows without features; shapes are those of `Runner.step`: [W, H] and [W, T]."""
        states = torch.empty(len(tokens), self._shape.hidden_size)
        hidden, mask = hidden.contiguous(), mask.contiguous()
        span, rows = mask.shape[1], len(tokens)
        self._call(tokens, start, span, rows, hidden=hidden, mask=mask, states=states)
        return Scored(states, self._logits[: len(tokens)])

    def chain(self, tokens: list[int], features: Tensor, start: int, length: int) -> list[int]:
        """Extend by rows with features, [N, 3 * H], and follow the best slots."""
        features = self._checked(features)
        slots = torch.empty(length, dtype=torch.int64)
        self._call(tokens, start, len(tokens), 1, length, features=features, chain=slots)
        return slots.tolist()

    def _call(
        self,
        tokens: list[int],
        start: int,
        span: int,
        outputs: int,
        length: int = 0,
        **tensors: Tensor,
    ) -> None:
        """Run one draft; the tensors are the structure's fields of that name."""
        if start + span + max(length - 1, 0) > self._capacity or outputs > MAX_ROWS:
            raise ValueError(
                f"a draft of {span} rows at {start}: the drafter's cache has {self._capacity} slots"
            )
        ids = torch.tensor(tokens)
        draft = _Draft(rows=len(tokens), start=start, span=span, outputs=outputs, length=length)
        draft.tokens = ids.data_ptr()
        for name, tensor in tensors.items():
            setattr(draft, name, tensor.data_ptr())
        self._run(ctypes.byref(self._head), ctypes.byref(draft))

    def _checked(self, features: Tensor) -> Tensor:
        """Return features as the code reads them."""
        assert features.shape[1] == NUM_FEATURES * self._shape.hidden_size
        return features.float().contiguous()

    def _fixed(self, head: Head, target: TargetInfo) -> _Head:
        """Return the structure with every pointer but that of the scratch."""
        shape, slots = head.shape, self._capacity
        fixed = _Head(
            *(shape.hidden_size, shape.intermediate_size, shape.num_heads, shape.num_kv_heads),
            *(shape.head_dim, shape.draft_vocab_size, slots, target.threads, MAX_ROWS),
            shape.rms_norm_eps,
        )
        fixed.embedding = self._matrix(target.embedding)
        for field, name in _MATRICES.items():
            setattr(fixed, field, self._matrix(head.tensors[f"{name}.weight"]))
        for field, name in _NORMS.items():
            setattr(fixed, field, self._keep(head.tensors[f"{name}.weight"].float()))
        half = shape.head_dim // 2
        cos, sin = (part[:, :half] for part in rotary_table(slots, shape))
        fixed.cosines, fixed.sines = self._keep(cos), self._keep(sin)
        fixed.ids = self._keep(head.vocab.ids)
        fixed.keys, fixed.values = (
            self._keep(torch.zeros(shape.num_kv_heads, slots, shape.head_dim)) for _ in range(2)
        )
        self._point_to_buffers(fixed, target.threads)
        return fixed

    def _point_to_buffers(self, fixed: _Head, threads: int) -> None:
        shape = self._shape
        queries = shape.num_heads * shape.head_dim
        widths = {"fused": shape.hidden_size, "query": queries, "mixed": queries}
        widths |= {"delta": shape.hidden_size} | dict.fromkeys(
            ("gated", "lifted"), shape.intermediate_size
        )
        for name, width in widths.items():
            setattr(fixed, name, self._keep(torch.empty(MAX_ROWS, width)))
        self._logits = torch.empty(MAX_ROWS, shape.draft_vocab_size)
        fixed.logits = self._keep(self._logits)
        fixed.bests = self._keep(torch.empty(threads, dtype=torch.int64))
        fixed.tops = self._keep(torch.empty(threads))

    def _matrix(self, weight: Tensor) -> Any:
        weight = weight if weight.dtype in _FORMATS else weight.float()
        rows, cols = weight.shape
        at = self._keep(weight)
        return _Weight(at, rows, cols, cols * weight.element_size(), _FORMATS[weight.dtype])

    def _keep(self, tensor: Tensor) -> int:
        """Return the address of a contiguous form, which lives as long as the runner."""
        tensor = tensor.contiguous()
        self._alive.append(tensor)
        return tensor.data_ptr()


def _check(shape: HeadShape) -> None:
    """Refuse sizes that do not fill whole vectors."""
    if shape.head_dim % 16 or shape.hidden_size % 32 or shape.intermediate_size % 32:
        raise ValueError(
            f"head with head_dim={shape.head_dim}, hidden_size={shape.hidden_size},"
            f" intermediate_size={shape.intermediate_size}: the captured draft needs multiples of"
            " 16, 32 and 32; use verify=extend"
        )
