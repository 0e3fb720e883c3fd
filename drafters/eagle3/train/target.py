"""Run the target over batches: hidden states for training, tokens for its data.

The engine that measures answers one request at a time and is built for that. Here a batch fills
the device; the two share weights and mathematics, and a test holds them to each other. `GraphStep`
captures a decoding step of one batch on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from drafters.eagle3.model import rms_norm, rotate
from verify.base import TargetShape

WARM_UPS = 2

# B sequences, T tokens, H hidden, N query heads, K key-value heads, E head width, V vocabulary


class Tokenizer(Protocol):
    """What is asked of a target's tokenizer."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a response."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text's token ids."""

    def render(self, messages: Sequence[dict[str, str]]) -> str:
        """Return a conversation with the chat template applied."""


class Checkpoint(Protocol):
    """What is asked of a target's opened checkpoint.

    Attributes:
        digest: Identity of the weights.
    """

    digest: str

    def shape(self) -> TargetShape:
        """Return the model's shape."""

    def tensor(self, name: str) -> Tensor:
        """Return a matrix, [out, in], or a norm, [H], by its Hugging Face name."""

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer."""


class States(NamedTuple):
    """What a forward leaves of every token.

    Attributes:
        features: [B, T, C * H], inputs of the capture layers, side by side.
        last: [B, T, H], the normed output of the last layer; `Target.logits` takes rows of it.
    """

    features: Tensor
    last: Tensor


class _Layer(NamedTuple):
    """Weights of a layer."""

    input_norm: Tensor
    qkv: Tensor
    output: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


class KV(NamedTuple):
    """Keys and values of a batch: per layer [B, K, S, E]."""

    keys: list[Tensor]
    values: list[Tensor]

    def take(self, rows: Tensor) -> KV:
        """Return the cache of some sequences, whose numbers are [B] int64."""
        return KV([part[rows] for part in self.keys], [part[rows] for part in self.values])


class Target:
    """A Llama-family model on one device."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> None:
        """Load the weights."""
        self.shape, self.device, self.dtype = checkpoint.shape(), device, dtype

        def load(*names: str) -> Tensor:
            parts = [checkpoint.tensor(f"{name}.weight").to(device, dtype) for name in names]
            return torch.cat(parts) if len(parts) > 1 else parts[0]

        self.embedding = load("model.embed_tokens")
        tied = self.shape.tie_word_embeddings
        self.head = self.embedding if tied else load("lm_head")
        self._norm = load("model.norm")
        self._layers = [_layer(load, number) for number in range(self.shape.num_layers)]
        halves = torch.arange(0, self.shape.head_dim, 2, dtype=torch.float64, device=device)
        self._inverse = self.shape.rope_theta ** -(halves / self.shape.head_dim)

    @torch.no_grad()
    def states(self, tokens: Tensor, capture_layers: tuple[int, ...]) -> States:
        """Run whole sequences, padded on the right, without a cache.

        Args:
            tokens: [B, T] int64 on the device.
            capture_layers: Layers whose inputs are wanted.
        """
        rotary = self.rotary(torch.arange(tokens.shape[1], device=self.device)[None])
        hidden, captured = self.embedding[tokens], []
        for number, layer in enumerate(self._layers):
            if number in capture_layers:
                captured.append(hidden)
            query, key, value = self._project(layer, hidden, rotary)
            seen = functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, enable_gqa=True
            )
            hidden = self._finish(layer, hidden, seen)
        return States(torch.cat(captured, dim=-1), self._normed(hidden, self._norm))

    @torch.no_grad()
    def prefill(self, tokens: Tensor, pads: Tensor, capacity: int) -> tuple[Tensor, KV]:
        """Read prompts that are padded on the left.

        Args:
            tokens: [B, T] int64 on the device.
            pads: [B] int64 on the device: pads before each prompt.
            capacity: Slots of the cache.

        Returns:
            The last token's logits, [B, V], and the cache with T slots in use.
        """
        count, length = tokens.shape
        places = torch.arange(length, device=self.device)
        rotary = self.rotary((places[None] - pads[:, None]).clamp(min=0))
        seen = (places[None, None] >= pads[:, None, None]) & (places[:, None] >= places)[None]
        seen = seen | torch.eye(length, dtype=torch.bool, device=self.device)  # a pad sees itself
        size = (count, self.shape.num_kv_heads, capacity, self.shape.head_dim)
        cache = KV([], [])
        hidden = self.embedding[tokens]
        for layer in self._layers:
            query, key, value = self._project(layer, hidden, rotary)
            for kept, new in ((cache.keys, key), (cache.values, value)):
                kept.append(torch.zeros(size, dtype=self.dtype, device=self.device))
                kept[-1][:, :, :length] = new
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=seen[:, None], enable_gqa=True
            )
            hidden = self._finish(layer, hidden, mixed)
        return self.logits(self._normed(hidden[:, -1], self._norm)), cache

    @torch.no_grad()
    def step(self, tokens: Tensor, pads: Tensor, cache: KV, length: int | Tensor) -> Tensor:
        """Append one token to each sequence; return its logits, [B, V].

        Args:
            tokens: [B] int64.
            pads: [B] int64, as in `prefill`.
            cache: Written at slot `length`.
            length: Slots in use. As a tensor, [1] int64 on the device, no shape depends on it, and
                the step can be captured.
        """
        shape = self.shape
        if isinstance(length, Tensor):
            slot, used = length, cache.keys[0].shape[2]
        else:
            slot, used = torch.tensor([length], device=self.device), length + 1
        rotary = self.rotary((slot - pads)[:, None])
        places = torch.arange(used, device=self.device)
        seen = ((places[None] >= pads[:, None]) & (places[None] <= slot))[:, None, None]
        hidden = self.embedding[tokens][:, None]
        for layer, keys, values in zip(self._layers, cache.keys, cache.values, strict=True):
            query, key, value = self._project(layer, hidden, rotary)
            keys.index_copy_(2, slot, key)
            values.index_copy_(2, slot, value)
            # The queries of a key-value head as its rows: no key is copied for each of them.
            grouped = query.view(len(tokens), shape.num_kv_heads, -1, shape.head_dim)
            mixed = functional.scaled_dot_product_attention(
                grouped, keys[:, :, :used], values[:, :, :used], attn_mask=seen
            )
            hidden = self._finish(layer, hidden, mixed.view(len(tokens), -1, 1, shape.head_dim))
        return self.logits(self._normed(hidden[:, 0], self._norm))

    def logits(self, rows: Tensor) -> Tensor:
        """Return the head's product of normed rows, […, V]."""
        return functional.linear(rows, self.head)

    def rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin at positions, […, E] float32 each."""
        angles = positions[..., None].double() * self._inverse
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().float(), angles.sin().float()

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight, self.shape.rms_norm_eps)

    def _project(
        self, layer: _Layer, hidden: Tensor, rotary: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, [B, N, T, E], keys and values, [B, K, T, E]."""
        shape = self.shape
        heads = functional.linear(self._normed(hidden, layer.input_norm), layer.qkv)
        heads = heads.view(*hidden.shape[:2], -1, shape.head_dim)
        turning = shape.num_heads + shape.num_kv_heads
        turned = rotate(heads[:, :, :turning], rotary).transpose(1, 2)
        value = heads[:, :, turning:].transpose(1, 2)
        return turned[:, : shape.num_heads], turned[:, shape.num_heads :], value

    def _finish(self, layer: _Layer, hidden: Tensor, mixed: Tensor) -> Tensor:
        """Return the layer's output, [B, T, H], of what its heads attended, [B, N, T, E]."""
        flat = mixed.transpose(1, 2).reshape(*hidden.shape[:2], -1)
        hidden = hidden + functional.linear(flat, layer.output)
        gate_up = functional.linear(self._normed(hidden, layer.post_norm), layer.gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        return hidden + functional.linear(functional.silu(gate) * up, layer.down)


def _layer(load: Callable[..., Tensor], number: int) -> _Layer:
    prefix = f"model.layers.{number}"
    return _Layer(
        input_norm=load(f"{prefix}.input_layernorm"),
        qkv=load(*(f"{prefix}.self_attn.{name}_proj" for name in "qkv")),
        output=load(f"{prefix}.self_attn.o_proj"),
        post_norm=load(f"{prefix}.post_attention_layernorm"),
        gate_up=load(f"{prefix}.mlp.gate_proj", f"{prefix}.mlp.up_proj"),
        down=load(f"{prefix}.mlp.down_proj"),
    )


class GraphStep:
    """`Target.step` of one batch, captured over the whole cache so that no shape changes."""

    def __init__(self, target: Target, pads: Tensor, cache: KV, length: int) -> None:
        """Capture.

        Args:
            target: The target, on a GPU.
            pads: [B] int64: pads before each prompt.
            cache: Written by every step; capturing writes slot `length`, which the next one owns.
            length: Slots in use.
        """
        self._tokens = torch.zeros_like(pads)
        self._length = torch.full((1,), length, dtype=torch.int64, device=pads.device)
        side = torch.cuda.Stream(pads.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(pads.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                target.step(self._tokens, pads, cache, self._length)
        torch.cuda.current_stream(pads.device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._logits = target.step(self._tokens, pads, cache, self._length)

    def __call__(self, tokens: Tensor, length: int) -> Tensor:
        """Append one token to each sequence; return its logits, [B, V], until the next call."""
        self._tokens.copy_(tokens)
        self._length.fill_(length)
        self._graph.replay()
        return self._logits
