"""Train a head: steps, schedule, metrics, and a state on disk from which a stopped run goes on."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from drafters.eagle3.data.corpus import Sample
from drafters.eagle3.train.batches import Teacher, steps
from drafters.eagle3.train.ttt import DraftHead, StepMetrics, accept_length

Report = Callable[[int, dict[str, float]], None]
_BETAS = (0.9, 0.95)
STATE = "state.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Course:
    """How a head is trained.

    Attributes:
        epochs: Times that every sample is seen.
        batch: Samples of a step, over all processes.
        learning_rate: At its highest.
        warm_up: Share of the steps in which it rises.
        floor: Share of the highest learning rate at the end of the cosine.
        weight_decay: Of matrices; norms have none.
        clip: Most length of the gradient.
        steps: Steps of the training-time test.
        most_tokens: Longer samples are cut.
        seed: Of the order of samples, and of new weights.
        report_every: Steps between two reports.
        save_every: Steps between two states on disk: a killed run loses no more.
    """

    epochs: float
    batch: int
    learning_rate: float
    warm_up: float
    floor: float
    weight_decay: float
    clip: float
    steps: int
    most_tokens: int
    seed: int
    report_every: int
    save_every: int

    def total(self, num_samples: int) -> int:
        """Return the number of steps; 0 epochs train nothing."""
        return int(self.epochs * (num_samples // self.batch))

    def rate(self, step: int, total: int) -> float:
        """Return the learning rate of a step: a rise, then half a cosine."""
        rise = max(int(self.warm_up * total), 1)
        if step < rise:
            return self.learning_rate * (step + 1) / rise
        along = (step - rise) / max(total - rise, 1)
        low = self.floor * self.learning_rate
        return low + (self.learning_rate - low) * 0.5 * (1 + math.cos(math.pi * along))


@dataclass
class Tally:
    """Sums over the steps since the last report, kept on the device until then."""

    losses: list[Tensor] = field(default_factory=list)
    right: list[Tensor] = field(default_factory=list)
    asked: list[Tensor] = field(default_factory=list)
    accepted: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    tokens: int = 0
    began: float = field(default_factory=time.perf_counter)

    def add(self, marks: StepMetrics, tokens: int) -> None:
        """Add one step's marks."""
        self.losses.append(marks.losses)
        self.right.append((marks.right & marks.asked).sum(dim=(1, 2)))
        self.asked.append(marks.asked.sum(dim=(1, 2)))
        self.accepted.append(accept_length(marks))
        self.tokens += tokens

    def metrics(self) -> dict[str, float]:
        """Return mean loss and accuracy of each position, the accept length, and tokens/s."""
        losses = torch.stack(self.losses).mean(dim=0).tolist()
        shares = torch.stack(self.right).sum(dim=0) / torch.stack(self.asked).sum(dim=0).clamp(1)
        drafts = sum(int(count) for _, count in self.accepted)
        accepted = sum(int(count) for count, _ in self.accepted)
        found = {f"loss_{place + 1}": loss for place, loss in enumerate(losses)}
        found |= {f"accuracy_{place + 1}": share for place, share in enumerate(shares.tolist())}
        found["accept_length_offline"] = 1 + accepted / max(drafts, 1)
        found["tokens_per_s"] = self.tokens / (time.perf_counter() - self.began)
        return found


def train(
    course: Course,
    learner: DraftHead,
    teacher: Teacher,
    samples: Sequence[Sample],
    folder: Path,
    facts: dict[str, Any],
    report: Report,
) -> int:
    """Train to the end of the course, from the state in `folder` if there is one.

    Args:
        course: How.
        learner: The head, on its device.
        teacher: The target, on the same device.
        samples: What is learnt from.
        folder: Of the run; one process writes there.
        facts: What a state must agree in.
        report: Called with a step's number and metrics.

    Returns:
        The number of steps.
    """
    rank, world = _place()
    optimizer = _optimizer(course, learner)
    first, total = load_state(folder, learner, optimizer, facts), course.total(len(samples))
    module = DistributedDataParallel(learner) if world > 1 else learner
    tally = Tally()
    for number, batch in enumerate(steps(samples, course.batch, course.seed, first, total), first):
        for group in optimizer.param_groups:
            group["lr"] = course.rate(number, total)
        mine = batch[rank::world]
        marks = learn(module, teacher, mine, optimizer, course.clip)
        tally.add(marks, world * sum(min(len(s.tokens), course.most_tokens) for s in mine))
        done = number + 1
        if rank == 0 and (done % course.report_every == 0 or done == total):
            report(done, tally.metrics() | {"learning_rate": course.rate(number, total)})
            tally = Tally()
        if rank == 0 and (done % course.save_every == 0 or done == total):
            save_state(folder, learner, optimizer, done, facts)
    return total


@torch.no_grad()
def examine(
    learner: DraftHead, teacher: Teacher, batches: Iterable[Sequence[Sample]]
) -> dict[str, float]:
    """Return the metrics of samples that were not learnt from."""
    tally = Tally()
    for batch in batches:
        lesson = teacher.lesson(batch)
        with _cast(learner):
            tally.add(learner(lesson), sum(len(sample.tokens) for sample in batch))
    return tally.metrics()


def learn(
    module: torch.nn.Module,
    teacher: Teacher,
    batch: Sequence[Sample],
    optimizer: AdamW,
    clip: float,
) -> StepMetrics:
    """Run one training step and return its marks.

    Args:
        module: The learner, or its form shared between processes.
        teacher: The target.
        batch: Samples.
        optimizer: Of the learner's weights.
        clip: Most length of the gradient.
    """
    lesson = teacher.lesson(batch)
    with _cast(module):
        marks: StepMetrics = module(lesson)
    optimizer.zero_grad(set_to_none=True)
    marks.loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(module.parameters(), clip)
    optimizer.step()
    return marks._replace(loss=marks.loss.detach())


def _place() -> tuple[int, int]:
    """Return this process's number, and how many train together."""
    if not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def _optimizer(course: Course, learner: DraftHead) -> AdamW:
    matrices = [part for part in learner.parameters() if part.dim() > 1]
    norms = [part for part in learner.parameters() if part.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": course.weight_decay},
        {"params": norms, "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=course.learning_rate, betas=_BETAS)


def _cast(module: torch.nn.Module) -> torch.autocast:
    """Compute in bfloat16 on a GPU; weights and optimizer stay float32."""
    kind = next(module.parameters()).device.type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda")


def identity(facts: dict[str, Any]) -> str:
    """Return a hash of what a run must share with the one that it goes on from."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


def save_state(
    folder: Path, learner: DraftHead, optimizer: AdamW, step: int, facts: dict[str, Any]
) -> None:
    """Write the state after `step` steps, whole or not at all.

    The order of batches follows from seed and step, and nothing else is drawn, so that no random
    state is needed.
    """
    tensors = {f"weight.{name}": part.detach() for name, part in learner.named_parameters()}
    tensors["scale"] = learner.scale
    for name, part in learner.named_parameters():
        kept = optimizer.state.get(part)
        if kept:
            tensors |= {f"{moment}.{name}": kept[moment] for moment in _MOMENTS}
    partial = folder / f"{STATE}.partial"
    metadata = {"step": str(step), "identity": identity(facts)}
    save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, partial, metadata)
    partial.replace(folder / STATE)


def load_state(folder: Path, learner: DraftHead, optimizer: AdamW, facts: dict[str, Any]) -> int:
    """Take up the state of a stopped run; return the steps that it had done, 0 if there is none.

    Raises:
        ValueError: The state is damaged, or of a run with other settings.
    """
    path = folder / STATE
    if not path.is_file():
        return 0
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to start again") from None
    if metadata["identity"] != identity(facts):
        raise ValueError(
            f"{path} is of a run with other settings or data; give another folder, or delete it"
        )
    step = int(metadata["step"])
    with torch.no_grad():
        learner.scale.copy_(tensors["scale"])
        for name, part in learner.named_parameters():
            part.copy_(tensors[f"weight.{name}"])
            moments = {moment: tensors[f"{moment}.{name}"].to(part.device) for moment in _MOMENTS}
            optimizer.state[part] = {"step": torch.tensor(float(step)), **moments}
    return step
