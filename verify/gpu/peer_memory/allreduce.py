"""Sum over ranks in memory of every rank that all others may write: buffers, calls, fused join."""

from __future__ import annotations

import torch
import torch.distributed as dist
import triton
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric

from verify.gpu.launch import overlap
from verify.gpu.peer_memory.kernels import one_shot, two_shot

# Blocks that wait for others must all run at once, or nobody sends: far below what fits a GPU.
MOST_BLOCKS = 256
_TWO_SHOT_BLOCK = 256
# Two bf16 NaNs that no arithmetic gives: a word is there once it differs.
EMPTY = -1
# Slots take turns. A rank writes a slot again only after a sum in the other one, to which every
# rank contributed after it had emptied this one: two are enough.
SLOTS = 2


class PeerBuffers:
    """Slots of each rank for what the others send; every word is empty between sums.

    Attributes:
        rank: This rank.
        world: Ranks.
        words: int32 words that one rank may send another at once.
        addresses: [world] int64 on the device: where each rank's slots begin.
    """

    def __init__(self, group: dist.ProcessGroup, device: torch.device, words: int) -> None:
        """Allocate, exchange addresses and empty the slots.

        Raises:
            ValueError: The GPUs cannot reach each other's memory.
        """
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.words = words
        for peer in range(self.world):
            if peer != self.rank and not torch.cuda.can_device_access_peer(device.index, peer):
                raise ValueError(
                    f"verify=fused_allreduce: GPU {device.index} cannot reach GPU {peer}'s memory"
                    " (no P2P); use verify=graph_captured"
                )
        size = SLOTS * self.world * words
        self._memory = symmetric.empty(size, dtype=torch.int32, device=device)
        self._memory.fill_(EMPTY)
        self._handle = symmetric.rendezvous(self._memory, group.group_name)
        assert self._handle.multicast_ptr == 0, "NVLink multicast must stay off"
        self.addresses = torch.tensor(self._handle.buffer_ptrs, dtype=torch.int64, device=device)
        torch.cuda.synchronize(device)
        dist.barrier(group)

    def slot(self, number: int) -> int:
        """Return where a slot begins, in words."""
        return number % SLOTS * self.world * self.words


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
        """Whether a message, [W, H] bf16, can be summed here."""
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


class FusedJoin:
    """Sum, residual add and norm in one kernel. There is no other way through this class."""

    allreduce = "fused"

    def __init__(self, peers: PeerAllReduce) -> None:
        """Bind the peers' memory."""
        self._peers = peers
        self.num_allreduces = self.num_fused = 0

    def __call__(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + sum of the ranks' deltas`, [W, H] bf16, and that sum."""
        self.num_allreduces += 1
        self.num_fused += 1
        return self._peers.fused(delta, residual, weight, eps)


def _as_words(tensor: Tensor) -> Tensor:
    """Return bf16 elements as words of two."""
    return tensor.view(torch.int32)
