"""How fast is a head trained? Tokens/s of a training step against the floor of its own products.

`python -m experiments.head_training [batch] [tokens]` trains a head of the embedded target's shape,
with random weights and random tokens: speed does not depend on either. The floor is the time that
the step's matrix products would take at the rate that one large product reaches on this device.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.optim import AdamW

from drafters.eagle3.data.__main__ import placement
from drafters.eagle3.data.corpus import Sample
from drafters.eagle3.shape import NUM_FEATURES, HeadShape, capture_layers
from drafters.eagle3.train.batches import Teacher
from drafters.eagle3.train.initial_head import NewHead, fresh
from drafters.eagle3.train.loop import learn
from drafters.eagle3.train.target import Target
from drafters.eagle3.train.ttt import DraftHead
from pipeline.target.random_checkpoint import RandomCheckpoint
from verify.base import TargetShape

SHAPE = TargetShape(30, 576, 1536, 9, 3, 64, 49152, 1e5, 1e-5, 8192, True)
STEPS = 4  # of the training-time test
REPEATS = 12
LARGE = 8192


class Work(NamedTuple):
    """Multiply-adds of a training step.

    Attributes:
        target: Of the target's forward, its head included.
        head: Of the head's forward and backward, all steps of the training-time test.
    """

    target: float
    head: float


def work(target: TargetShape, head: HeadShape, tokens: int, answers: int) -> Work:
    """Return the multiply-adds in matrix products of a batch.

    Args:
        target: The target's shape.
        head: The head's.
        tokens: Of the batch, padding included.
        answers: Of these, the ones that an answer's token follows.
    """
    hidden, query = target.hidden_size, target.num_heads * target.head_dim
    key = target.num_kv_heads * target.head_dim
    layer = hidden * (2 * query + 2 * key + 3 * target.intermediate_size)
    forward = tokens * target.num_layers * layer + answers * target.vocab_size * hidden
    query, key = head.num_heads * head.head_dim, head.num_kv_heads * head.head_dim
    own = hidden * (3 * query + 4 * key + 3 * head.intermediate_size)
    scored = answers * head.draft_vocab_size * hidden
    passes = 3  # forward, gradient of the input, gradient of the weight
    fused = tokens * NUM_FEATURES * hidden * hidden
    return Work(forward, passes * (STEPS * (tokens * own + scored) + fused))


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return the multiply-adds per second of one large product."""
    size = LARGE if device.type == "cuda" else LARGE // 8
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return size**3 / min(timed(lambda: a @ b, device) for _ in range(REPEATS))


def timed(call: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of one call."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main(batch: int, length: int) -> None:
    """Time training steps and print the table."""
    device, dtype = placement("auto")
    target = Target(RandomCheckpoint(SHAPE, torch.bfloat16), device, dtype)
    head = fresh(NewHead(8192), target, torch.arange(SHAPE.vocab_size), torch.ones(3 * 576), seed=0)
    layers = capture_layers((), SHAPE.num_layers)
    teacher = Teacher(target, head.vocab, layers, length)
    learner = DraftHead(head, torch.ones(3 * 576), length, STEPS).to(device)
    optimizer = AdamW(learner.parameters(), lr=1e-4)
    half = length // 2
    samples = [
        Sample(torch.randint(0, SHAPE.vocab_size, (length,), dtype=torch.int32), half)
        for _ in range(batch)
    ]

    def step() -> None:
        learn(learner, teacher, samples, optimizer, clip=1.0)

    for _ in range(3):
        step()
    whole = sorted(timed(step, device) for _ in range(REPEATS))[REPEATS // 2]
    teaching = sorted(timed(lambda: teacher.lesson(samples), device) for _ in range(REPEATS))
    tokens, rate = batch * length, product_rate(device, dtype)
    done = work(SHAPE, head.shape, tokens, batch * half)
    floor = sum(done) / rate
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, {dtype}: batch {batch} × {length} tokens")
    print(f"one large product: {2e-12 * rate:.0f} Tflop/s")
    print(f"step: {whole * 1e3:.1f} ms, of which the target {teaching[REPEATS // 2] * 1e3:.1f} ms")
    print(f"{tokens / whole:,.0f} tokens/s; {2e-12 * sum(done) / whole:.0f} Tflop/s in products")
    print(f"floor: {floor * 1e3:.1f} ms; the step runs at {floor / whole:.0%} of it")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:3]]
    main(*(given + [64, 256][len(given) :]))
