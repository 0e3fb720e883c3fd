"""Memory of every rank that all others may write, and what a word in it looks like when empty."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed import _symmetric_memory as symmetric

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
