"""Ranks that run a target together, as processes over gloo, give what one rank gives."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch

from pipeline.engine.torch.parallel.leader import ParallelLlama
from pipeline.engine.torch.parallel.shards import shards
from pipeline.engine.torch.weights import DenseLoader
from pipeline.target.random_checkpoint import RandomCheckpoint
from verify.base import StepInput, TargetShape
from verify.extend import Extend
from verify.graph_captured import GraphCaptured
from verify.native.build import find_compiler

# SmolLM2's odd heads, 9 over 3, in a small model; the vocabulary does not divide either.
SHAPE = TargetShape(
    num_layers=3,
    hidden_size=96,
    intermediate_size=256,
    num_heads=9,
    num_kv_heads=3,
    head_dim=16,
    vocab_size=301,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    max_positions=128,
    tie_word_embeddings=True,
)
LOADER = DenseLoader(RandomCheckpoint(SHAPE), 64, torch.float32, (1,))
# float32 sums in another order: 1e-6 a product, grown through three layers.
TOLERANCE = 1e-5


def chain(width, start, seed=0):
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(SHAPE.vocab_size, (width,), generator=draw)
    mask = torch.ones(width, width, dtype=torch.bool).tril()
    return StepInput(tokens, torch.arange(width) + start, mask, start)


@pytest.fixture(scope="module")
def alone():
    return LOADER(shards(SHAPE, 1)[0], torch.device("cpu"))


@pytest.fixture(scope="module")
def together():
    model = ParallelLlama(LOADER, SHAPE, 2, "cpu")
    yield model
    model.close()


def test_nine_heads_over_three_split_into_six_and_three_with_balanced_columns():
    first, second = shards(SHAPE, 2)
    assert (first.kv_heads, second.kv_heads) == (range(2), range(2, 3))
    assert (first.columns, second.columns) == (range(96), range(96, 256))
    assert (first.vocabulary, second.vocabulary) == (range(151), range(151, 301))


def test_one_rank_holds_everything():
    (only,) = shards(SHAPE, 1)
    assert (only.kv_heads, only.columns, only.vocabulary) == (range(3), range(256), range(301))


def test_more_ranks_than_heads_are_refused():
    with pytest.raises(ValueError, match=r"parallelism\.tp=4: .* use at most 3"):
        shards(SHAPE, 4)


def test_two_ranks_give_the_outputs_of_one(alone, together):
    with torch.inference_mode():
        for start, width in ((0, 7), (7, 1), (8, 4)):
            one, two = alone.forward(chain(width, start)), together.forward(chain(width, start))
            assert torch.equal(one.best, two.best)
            assert (one.logits - two.logits).norm() < TOLERANCE * one.logits.norm()
            assert (one.features - two.features).norm() < TOLERANCE * one.features.norm()


def test_a_step_makes_two_allreduces_a_layer(together):
    step = together.build(Extend(), 4, 1)
    with torch.inference_mode():
        together.forward(chain(5, 0))  # a prefill is not counted
        for start in (5, 9):
            step(chain(4, start))
    proof = step.proof
    step.close()
    assert proof.num_verify_steps == 2
    assert (proof.allreduce, proof.allreduces_per_step) == ("gloo", 2 * SHAPE.num_layers)
    assert proof.fused_allreduces_per_step == 0


def test_a_cpu_trace_over_ranks_is_refused_and_the_ranks_live_on(together):
    with pytest.raises(ValueError, match="cannot hold gloo's all-reduces"):
        together.build(GraphCaptured(), 4, 1)
    with torch.inference_mode():
        assert len(together.forward(chain(2, 0)).best) == 2


def test_what_a_tree_keeps_is_kept_on_every_rank(alone, together):
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]]).bool()
    tree = StepInput(torch.tensor([3, 4, 5]), torch.tensor([6, 7, 7]), mask, 6)
    after = []
    with torch.inference_mode():
        for model in (alone, together):
            model.cache.length = 0
            model.forward(chain(6, 0))
            model.cache.keep(tuple(range(6)))
            model.forward(tree)
            model.cache.keep((0, 2))
            after.append(model.forward(chain(1, 8)).logits)
    assert (after[0] - after[1]).norm() < TOLERANCE * after[0].norm()


START = """
import sys, torch
from pipeline.engine.torch.parallel.leader import ParallelLlama
from pipeline.engine.torch.weights import DenseLoader, PackedLoader
from pipeline.target.random_checkpoint import RandomCheckpoint
from verify.base import StepInput, TargetShape
from verify.extend import Extend
from verify.fused_allreduce import FusedAllreduce
if __name__ == "__main__":
    device, arm = sys.argv[1:]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    shape = TargetShape(2, 512, 1024, 4, 2, 64, 64, 1e4, 1e-5, 64, False)
    loader = DenseLoader(RandomCheckpoint(shape), 32, dtype)
    if (device, arm) == ("cpu", "fused"):  # a GPU box may lack what these need
        from pipeline.machine.cache import cache_root
        from pipeline.target.target import Target
        from tests.pipeline.conftest import EMBEDDED

        checkpoint = Target("smollm2_135m", EMBEDDED).checkpoint(cache_root())
        shape, loader = checkpoint.shape(), PackedLoader(checkpoint, 32, 1, 1, cache_root())
    model = ParallelLlama(loader, shape, 2, device)
    step = model.build(FusedAllreduce() if arm == "fused" else Extend(), 1, 1)
    print("ready", model.followers[0].pid, flush=True)
    mask = torch.ones(1, 1, dtype=torch.bool)
    with torch.inference_mode():
        while True:
            step(StepInput(torch.zeros(1, dtype=torch.int64), torch.tensor([3]), mask, 3))
"""


class Pair:
    """Two ranks at work in processes of their own."""

    def __init__(self, folder, *arm):
        script = folder / "start.py"
        script.write_text(START)
        self.leader = subprocess.Popen(
            [sys.executable, script, *arm],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(Path.cwd()), *sys.path))},
        )
        self.follower = int(self.leader.stdout.readline().split()[1])
        time.sleep(0.2)  # into the steps

    def kill(self, victims):
        pids = {"leader": [self.leader.pid], "follower": [self.follower]}
        for pid in pids.get(victims, [self.leader.pid, self.follower]):
            os.kill(pid, signal.SIGKILL)

    def errors(self):
        """What the leader said last; both are gone then."""
        _, errors = self.leader.communicate(timeout=600)
        deadline = time.monotonic() + 600
        while psutil.pid_exists(self.follower) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not psutil.pid_exists(self.follower)
        assert self.leader.returncode != 0
        return errors.decode()


NEEDS_GPUS = (
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
)
NEEDS_COMPILER = pytest.mark.skipif(find_compiler() is None, reason="a compiled step needs one")


@pytest.mark.faults
@pytest.mark.parametrize(
    ("device", "arm", "victim"),
    [
        ("cpu", "eager", "leader"),
        ("cpu", "eager", "follower"),
        pytest.param("cpu", "fused", "follower", marks=NEEDS_COMPILER),
        pytest.param("cpu", "fused", "both", marks=NEEDS_COMPILER),
        pytest.param("cuda", "fused", "leader", marks=NEEDS_GPUS),
        pytest.param("cuda", "fused", "follower", marks=NEEDS_GPUS),
    ],
)
def test_when_a_rank_is_killed_none_stays_and_no_named_memory_could(tmp_path, device, arm, victim):
    pair = Pair(tmp_path, device, arm)
    for pid in (pair.leader.pid, pair.follower):
        mapped = Path(f"/proc/{pid}/maps").read_text()
        assert "/memfd:specroi (deleted)" in mapped
        if device == "cpu":
            assert "/dev/shm" not in mapped
    pair.kill(victim)
    errors = pair.errors()
    if victim == "follower":
        assert "a tensor-parallel rank ended early (exit codes: rank 1: -9)" in errors
        if (device, arm) == ("cpu", "fused"):
            assert "RankLost: rank 1 did not come to a sum over ranks" in errors
