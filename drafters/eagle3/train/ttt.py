"""Training-time test: a head is trained on the rows that it will meet when it drafts.

Step 0 starts from the target's hidden states, as the first draft token does. Step k starts from
the head's own output of step k - 1, as draft token k + 1 does, and attends what that one does: all
step-0 rows up to its own, and one row of each step between.

Source: Li et al. 2025, EAGLE-3, section 3.2, https://arxiv.org/abs/2503.01840
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from drafters.eagle3.checkpoint import Head
from drafters.eagle3.model import finish, fuse, project, rotary_table, score

# B sequences, T tokens, H hidden, M rows that predict an answer's token, D draft vocabulary
# N query heads, K key-value heads, E head width

DECAY = 0.8  # weight of each further step's loss: later tokens count only if earlier ones did


class TargetBatch(NamedTuple):
    """The target's labels of a batch, and the features that a head reads.

    Attributes:
        embeds: [B, T, H], its embedding of the tokens.
        features: [B, T, 3 * H], its hidden states.
        rows: [2, M] int64: sequence and place of each token whose successor is an answer's.
        probs: [M, D] float32: its distribution after that token, over the draft vocabulary alone.
        best: [M] int64: its first choice there, of all tokens.
        known: [M] bool: whether that choice is in the draft vocabulary.
    """

    embeds: Tensor
    features: Tensor
    rows: Tensor
    probs: Tensor
    best: Tensor
    known: Tensor


class StepMetrics(NamedTuple):
    """How a head did on a lesson.

    Attributes:
        loss: [] the sum over steps that is minimised.
        losses: [steps] cross-entropy of each step.
        right: [steps, B, T] bool: whether the row that starts here proposes the target's choice.
        asked: [steps, B, T] bool: whether there is a choice to propose.
    """

    loss: Tensor
    losses: Tensor
    right: Tensor
    asked: Tensor


class DraftHead(nn.Module):
    """A head in training.

    Its `fc` reads features whose channels have been scaled to about 1: a few channels of a target
    are a thousand times larger than others. `head` folds the scale into the weight, so that what is
    published reads features as they are.
    """

    def __init__(self, head: Head, scale: Tensor, most_tokens: int, steps: int) -> None:
        """Take over a head's weights.

        Args:
            head: What to start from.
            scale: [3 * H] float32, the channels' usual size.
            most_tokens: T of the longest batch.
            steps: Steps of the training-time test; at least the draft tokens of a chain.
        """
        super().__init__()
        self._shape, self._vocab, self._capture_ids = head.shape, head.vocab, head.capture_ids
        self._stated = head.stated
        self._steps = steps
        self._names = tuple(head.tensors)
        for name, tensor in head.tensors.items():
            start = tensor.float() * scale if name == "fc.weight" else tensor.float().clone()
            self.register_parameter(_plain(name), nn.Parameter(start))
        self.scale: Tensor
        self.ids: Tensor
        self._cos: Tensor
        self._sin: Tensor
        self.register_buffer("scale", scale.clone())
        self.register_buffer("ids", head.vocab.ids.clone())
        cos, sin = rotary_table(most_tokens + steps, head.shape)
        self.register_buffer("_cos", cos, persistent=False)
        self.register_buffer("_sin", sin, persistent=False)

    def head(self) -> Head:
        """Return the head as it stands, on the CPU, in float32."""
        tensors = {name: part.detach().cpu().clone() for name, part in self._weights().items()}
        tensors["fc.weight"] /= self.scale.cpu()
        return Head(self._shape, tensors, self._vocab, self._capture_ids, self._stated)

    def forward(self, lesson: TargetBatch) -> StepMetrics:
        """Run all steps over a batch."""
        weights = self._weights()
        features = (lesson.features / self.scale).to(lesson.features.dtype)
        hidden = fuse(weights, features).float()  # the residual stream stays float32
        keys: list[Tensor] = []
        values: list[Tensor] = []
        losses, right, asked = [], [], []
        for step in range(self._steps):
            hidden = self._step(weights, lesson.embeds, hidden, step, keys, values)
            loss, *marked = self._mark(weights, hidden, lesson, step)
            losses.append(loss)
            right.append(marked[0])
            asked.append(marked[1])
        stacked = torch.stack(losses)
        decay = DECAY ** torch.arange(self._steps, device=stacked.device)
        return StepMetrics(
            (stacked * decay).sum(), stacked.detach(), torch.stack(right), torch.stack(asked)
        )

    def _step(
        self,
        weights: dict[str, Tensor],
        embeds: Tensor,
        hidden: Tensor,
        step: int,
        keys: list[Tensor],
        values: list[Tensor],
    ) -> Tensor:
        """Return the output states of one step's rows, [B, T, H]; append its keys and values."""
        length = hidden.shape[1]
        # Row i holds token i + 1 + step. The last rows hold the first tokens: nothing reads them.
        embeds = embeds.roll(-1 - step, dims=1)
        rotary = tuple(part[step : step + length] for part in (self._cos, self._sin))
        query, key, value = project(weights, self._shape, embeds, hidden, (rotary[0], rotary[1]))
        group = self._shape.num_heads // self._shape.num_kv_heads
        keys.append(key.repeat_interleave(group, dim=2).transpose(1, 2))
        values.append(value.repeat_interleave(group, dim=2).transpose(1, 2))
        mixed = _attend(query.transpose(1, 2), keys, values)
        return finish(weights, self._shape, mixed.transpose(1, 2).flatten(2), hidden)

    def _mark(
        self, weights: dict[str, Tensor], hidden: Tensor, lesson: TargetBatch, step: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return a step's loss, and where it was right and was asked, [B, T]."""
        sequence, place = lesson.rows
        row = place - 1 - step  # the head's row that scores this token's successor
        inside = row >= 0
        logits = score(weights, self._shape, hidden[sequence, row.clamp(min=0)]).float()
        entropy = -(lesson.probs * logits.log_softmax(dim=-1)).sum(dim=-1)
        counted = (inside & lesson.known).float()
        loss = (entropy * counted).sum() / counted.sum().clamp(min=1)
        marks = torch.zeros(2, *hidden.shape[:2], dtype=torch.bool, device=hidden.device)
        choice = self.ids[logits.argmax(dim=-1)]
        marks[0, sequence[inside], row[inside]] = (choice == lesson.best)[inside]
        marks[1, sequence[inside], row[inside]] = True
        return loss, marks[0], marks[1]

    def _weights(self) -> dict[str, Tensor]:
        return {name: self.get_parameter(_plain(name)) for name in self._names}


def accept_length(marks: StepMetrics) -> tuple[Tensor, Tensor]:
    """Return accepted draft tokens and drafts, [] int64 each, for chains of all steps.

    A draft starts at every row whose first token belongs to an answer, as a chain would if every
    step committed one token; the ratio plus 1 estimates the accept length.
    """
    accepted = (marks.right & marks.asked).int().cumprod(dim=0)
    return accepted.sum(), marks.asked[0].sum()


def channel_scale(features: Tensor) -> Tensor:
    """Return the usual size of each channel, [3 * H] float32, of features, [rows, 3 * H].

    The median is blind to the few tokens whose states are hundreds of times larger.
    """
    sizes = features.float().abs().median(dim=0).values
    return sizes.clamp(min=float(sizes.median()) * 1e-2 + 1e-6)


def _attend(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Return what the rows of the newest step attend, [B, N, T, E].

    Args:
        query: [B, N, T, E].
        keys: [B, N, T, E] of each step so far. A row sees step 0 up to its own place, and of the
            others its own place alone.
        values: Like `keys`.
    """
    scale, length = query.shape[-1] ** -0.5, query.shape[2]
    causal = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    scores = (query @ keys[0].transpose(-1, -2) * scale).float()
    scores = scores.masked_fill(~causal, float("-inf"))
    own = [(query * key).sum(dim=-1, keepdim=True).float() * scale for key in keys[1:]]
    shares = torch.cat([scores, *own], dim=-1).softmax(dim=-1).to(values[0].dtype)
    mixed = shares[..., :length] @ values[0]
    for step, value in enumerate(values[1:]):
        mixed = mixed + shares[..., length + step, None] * value
    return mixed


def _plain(name: str) -> str:
    """Return a tensor's name as a parameter may be called."""
    return name.replace(".", "_")
