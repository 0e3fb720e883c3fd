"""From samples to what a head learns from: batches in a fixed order, and the target's own words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from drafters.eagle3.data.corpus import Sample
from drafters.eagle3.train.target import Target
from drafters.eagle3.train.ttt import TargetBatch
from drafters.vocab.maps import VocabMap

_POOL = 64  # batches that are sorted by length together: little padding, order still by chance


def batches(samples: Sequence[Sample], size: int, seed: int, epoch: int) -> list[list[Sample]]:
    """Return an epoch's batches; the same seed and epoch give the same ones.

    The last samples that do not fill a batch are left for another epoch's order.
    """
    generator = torch.Generator().manual_seed(seed * 1009 + epoch)
    order = torch.randperm(len(samples), generator=generator).tolist()
    found: list[list[Sample]] = []
    for first in range(0, len(order) - size + 1, size * _POOL):
        pool = sorted(order[first : first + size * _POOL], key=lambda i: len(samples[i].tokens))
        whole = len(pool) - len(pool) % size
        found += [[samples[i] for i in pool[at : at + size]] for at in range(0, whole, size)]
    shuffled = torch.randperm(len(found), generator=generator).tolist()
    return [found[i] for i in shuffled]


def steps(
    samples: Sequence[Sample], size: int, seed: int, first: int, last: int
) -> Iterator[list[Sample]]:
    """Yield the batches of training steps `first` to `last - 1`, over as many epochs as it takes.

    Raises:
        ValueError: There are fewer samples than one batch takes.
    """
    each = len(batches(samples, size, seed, 0))
    if not each:
        raise ValueError(f"batch={size}: only {len(samples)} samples; lower it or make more data")
    number, epoch, now = first, -1, []
    while number < last:
        if number // each != epoch:
            epoch = number // each
            now = batches(samples, size, seed, epoch)
        yield now[number % each]
        number += 1


class Teacher:
    """Labels batches with the target's hidden states and next-token probabilities."""

    def __init__(
        self, target: Target, vocab: VocabMap, capture_layers: tuple[int, ...], most_tokens: int
    ) -> None:
        """Bind the target.

        Args:
            target: The target.
            vocab: The head's draft vocabulary.
            capture_layers: Layers whose inputs the head reads.
            most_tokens: Longer samples are cut.
        """
        self._target, self._layers, self._most = target, capture_layers, most_tokens
        self._ids = vocab.ids.to(target.device)
        self._known = vocab.t2d.to(target.device)

    @torch.no_grad()
    def lesson(self, batch: Sequence[Sample]) -> TargetBatch:
        """Run the target over a batch."""
        tokens, answers, lengths = self._padded(batch)
        states = self._target.states(tokens, self._layers)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        speaks = (places[None] + 1 >= answers[:, None]) & (places[None] + 1 < lengths[:, None])
        rows = speaks.nonzero().T
        logits = self._target.logits(states.last[rows[0], rows[1]])
        best = logits.argmax(dim=-1)
        return TargetBatch(
            embeds=self._target.embedding[tokens],
            features=states.features,
            rows=rows,
            probs=logits[:, self._ids].float().softmax(dim=-1),
            best=best,
            known=self._known[best],
        )

    def _padded(self, batch: Sequence[Sample]) -> tuple[Tensor, Tensor, Tensor]:
        """Return tokens padded on the right, where answers start, and lengths."""
        device = self._target.device
        cut = [sample.tokens[: self._most].long() for sample in batch]
        tokens = torch.nn.utils.rnn.pad_sequence(cut, batch_first=True)
        answers = torch.tensor([sample.answer for sample in batch])
        lengths = torch.tensor([len(part) for part in cut])
        return tokens.to(device), answers.to(device), lengths.to(device)
