"""Call the kernels: sums over ranks that fit a slot, with or without residual add and norm."""

from __future__ import annotations

import torch
import torch.distributed as dist
import triton
from torch import Tensor

from verify.gpu.launch import overlap
from verify.gpu.peer_memory.buffers import PeerBuffers
from verify.gpu.peer_memory.kernels import one_shot, two_shot

# Blocks that wait for others must all run at once, or nobody sends: far below what fits a GPU.
MOST_BLOCKS = 256
_TWO_SHOT_BLOCK = 256


class PeerAllReduce:
    """The all-reduces of one group over peer memory; bf16, and alike on every rank to the bit."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device, most_elements: int) -> None:
        """Allocate slots for messages of up to `most_elements`.

        Raises:
            ValueError: The GPUs cannot reach each other's memory.
        """
        self._one = PeerBuffers(group, device, most_elements // 2)
        self._two = PeerBuffers(group, device, most_elements // 2)
        self._calls = 0
        self._launch = overlap(device)

    def fits(self, message: Tensor) -> bool:
        """Return whether a message, [W, H], fits into the ranks' buffers."""
        return message.numel() // 2 <= self._one.words and len(message) <= MOST_BLOCKS

    def one_shot(self, message: Tensor) -> Tensor:
        """Return the sum of [W, H] over the ranks; everyone sends everything to everyone."""
        out = torch.empty_like(message)
        self._one_shot(message, message, message, out, message, 0.0, fused=False)
        return out

    def fused(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + sum of deltas`, [W, H], and that sum: one kernel."""
        out, total = torch.empty_like(delta), torch.empty_like(delta)
        self._one_shot(delta, residual, weight, out, total, eps, fused=True)
        return out, total

    def two_shot(self, message: Tensor) -> Tensor:
        """Return the sum of [W, H] over the ranks; every element crosses a link twice."""
        out, words = torch.empty_like(message), message.numel() // 2
        buffers = self._two
        two_shot[(triton.cdiv(words, 4 * _TWO_SHOT_BLOCK),)](
            *(_as_words(message), _as_words(out), buffers.addresses),
            *(self._slot(buffers), buffers.words, words),
            RANK=buffers.rank,
            WORLD=buffers.world,
            BLOCK=_TWO_SHOT_BLOCK,
            num_warps=_TWO_SHOT_BLOCK // 32,
            **self._launch,
        )
        return out

    def _slot(self, buffers: PeerBuffers) -> int:
        """Return the slot whose turn it is; a graph replays the turns that it recorded."""
        self._calls += 1
        return buffers.slot(self._calls)

    def _one_shot(
        self,
        delta: Tensor,
        residual: Tensor,
        weight: Tensor,
        out: Tensor,
        total: Tensor,
        eps: float,
        fused: bool,
    ) -> None:
        """Run one block a row."""
        buffers, words = self._one, delta.shape[1] // 2
        block = triton.next_power_of_2(triton.cdiv(words, 4))
        one_shot[(len(delta),)](
            *(_as_words(tensor) for tensor in (delta, residual, weight, out, total)),
            *(buffers.addresses, self._slot(buffers), buffers.words, eps),
            RANK=buffers.rank,
            WORLD=buffers.world,
            WORDS=words,
            BLOCK=block,
            FUSED=fused,
            num_warps=max(1, min(16, block // 32)),
            **self._launch,
        )


def _as_words(tensor: Tensor) -> Tensor:
    """Return bf16 elements as words of two."""
    return tensor.view(torch.int32)
