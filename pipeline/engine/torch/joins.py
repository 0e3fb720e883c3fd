"""Where tensor-parallel ranks meet: the sum at the end of a block, and the head's vocabulary."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.engine.torch.kernels import Kernels
from pipeline.engine.torch.llama import Matrix


class SeparateJoin:
    """The library's all-reduce, then residual add and norm by the model's own kernel.

    Attributes:
        allreduce: The library: `gloo` or `nccl`.
    """

    def __init__(self, kernels: Kernels, group: dist.ProcessGroup) -> None:
        """Bind the ranks' group."""
        self.allreduce = str(dist.get_backend(group))
        self.num_allreduces = self.num_fused = 0
        self._kernels, self._group = kernels, group

    def __call__(
        self, delta: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Return the norm of `residual + sum of the ranks' deltas`, and that sum."""
        self.num_allreduces += 1
        dist.all_reduce(delta, group=self._group)
        return self._kernels.add_rms_norm(delta, residual, weight, eps)


class VocabularyParallelHead:
    """The head's product over this rank's rows, gathered from all ranks.

    Attributes:
        own: This rank's product.
    """

    def __init__(self, head: Matrix, vocab_size: int, group: dist.ProcessGroup) -> None:
        """Bind this rank's product; every rank but the last holds equally many rows."""
        self.own, self._vocab_size, self._group = head, vocab_size, group
        self._world = dist.get_world_size(group)

    def __call__(self, x: Tensor) -> Tensor:
        """Return all logits, [W, V] float32, on every rank."""
        part = -(-self._vocab_size // self._world)
        own = self.own(x).float()
        missing = part - own.shape[1]
        if missing:
            own = torch.nn.functional.pad(own, (0, missing))
        parts = own.new_empty((self._world, *own.shape))
        dist.all_gather(list(parts.unbind()), own.contiguous(), group=self._group)
        joined = parts.transpose(0, 1).reshape(len(x), self._world * part)
        return joined[:, : self._vocab_size].contiguous()
