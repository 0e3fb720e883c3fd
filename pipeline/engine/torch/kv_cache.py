"""A static key-value cache for one request: allocated once, written at slots, never moved."""

from __future__ import annotations

import torch

from verify.base import TargetShape


class KVCache:
    """Keys and values of one request.

    Attributes:
        keys: [L, KV, S, D]; slot i holds the key of token i, rotated.
        values: [L, KV, S, D].
        length: Slots that hold committed tokens.
    """

    def __init__(
        self,
        shape: TargetShape,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        num_kv_heads: int,
    ) -> None:
        """Allocate `capacity` slots of `num_kv_heads` heads, zeroed: a masked NaN would spread."""
        size = (shape.num_layers, num_kv_heads, capacity, shape.head_dim)
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros(size, dtype=dtype, device=device)
        self.length = 0

    @property
    def capacity(self) -> int:
        """Slots that were allocated."""
        return self.keys.shape[2]

    def keep(self, rows: tuple[int, ...]) -> None:
        """Commit rows of the last step, in order; row i was written to slot `length + i`.

        A chain's rows already stand in their places. A tree's accepted path is moved together.
        """
        if rows != tuple(range(len(rows))):
            source = torch.tensor(rows, device=self.keys.device) + self.length
            window = slice(self.length, self.length + len(rows))
            self.keys[:, :, window] = self.keys[:, :, source]
            self.values[:, :, window] = self.values[:, :, source]
        self.length += len(rows)
