"""Two ranks of a CPU with packed weights and a compiled step, against one, on the real model."""

from dataclasses import replace

import pytest
import torch

from pipeline.engine.torch.parallel.leader import ParallelLlama
from pipeline.engine.torch.parallel.shards import shards
from pipeline.engine.torch.weights import PackedLoader
from pipeline.machine.cache import cache_root
from tests.verify.native.dequantized import dequantize
from verify.base import StepInput
from verify.extend import Extend
from verify.fused_allreduce import FusedAllreduce
from verify.graph_captured import GraphCaptured
from verify.native.build import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="a compiled step needs a compiler")

CONTEXT, WIDTH = 80, 8
ARMS = {
    "gloo": GraphCaptured(allreduce="gloo"),
    "shared_memory": GraphCaptured(),
    "fused": FusedAllreduce(),
}
# A product that is summed in two parts rounds otherwise: 1e-7 a sum, grown through thirty layers.
TOLERANCE = 1e-5


def chain(width, start):
    tokens = torch.arange(start, start + width) * 7 % 49152
    return StepInput(
        tokens, torch.arange(width) + start, torch.ones(width, width).tril() > 0, start
    )


@pytest.fixture(scope="module")
def checkpoint(embedded, cache):
    return embedded.checkpoint(cache)


@pytest.fixture(scope="module")
def models(checkpoint):
    """The target on one rank and on two, both with the same context."""
    loader = PackedLoader(checkpoint, 128, WIDTH, 1, cache_root(), (2, 15))
    alone = loader(shards(checkpoint.shape(), 1)[0], torch.device("cpu"))
    together = ParallelLlama(loader, checkpoint.shape(), 2, "cpu")
    prompt = chain(CONTEXT, 0)
    with torch.inference_mode():
        outs = [model.plan.prefill(*prompt[:2]) for model in (alone, together)]
    assert torch.equal(outs[0].best, outs[1].best)
    yield alone, together
    together.close()


def close(one, two):
    return (one - two).norm() < TOLERANCE * one.norm()


def test_packed_parts_are_those_of_the_whole_matrices(checkpoint):
    packed, shape = checkpoint.packed(), checkpoint.shape()
    parts = [shard.of_packed(packed) for shard in shards(shape, 2)]
    layer = "model.layers.3."
    for name, axis in (("self_attn.k_proj", 0), ("self_attn.o_proj", 1), ("mlp.down_proj", 1)):
        name = f"{layer}{name}.weight"
        joined = torch.cat([dequantize(part[name]) for part in parts], axis)
        assert torch.equal(joined, dequantize(packed[name]))
    head = torch.cat([part["lm_head.weight"].data for part in parts])
    assert torch.equal(head, packed["model.embed_tokens.weight"].data)


def test_blocks_are_not_cut(checkpoint):
    shape = replace(checkpoint.shape(), num_heads=36, num_kv_heads=12, head_dim=16)
    with pytest.raises(ValueError, match=r"columns 0 to 47 .* between blocks of 32"):
        shards(shape, 12)[0].of_packed(checkpoint.packed())


def test_logits_of_two_ranks_are_those_of_one_by_every_way_to_sum(models):
    alone, together = models
    steps = {way: together.build(backend, WIDTH, 1) for way, backend in ARMS.items()}
    with torch.inference_mode():
        for width in (1, 4, 8):
            inputs = chain(width, CONTEXT)
            one = alone.plan.run(*inputs)
            first = None
            for way, step in steps.items():
                two = step(inputs)
                assert close(one.logits, two.logits), way
                assert close(one.features, two.features), way
                assert torch.equal(one.best, two.best)
                first = two.logits.clone() if first is None else first
                assert torch.equal(first, two.logits), "all ways give the same bits"
    for way, step in steps.items():
        proof = step.proof
        assert (proof.capture, proof.allreduce, proof.num_captured_steps) == ("native_plan", way, 3)
        assert proof.allreduces_per_step == 60
        assert ARMS[way].contradiction(proof) is None
        step.reset_counts()
        assert step.proof.allreduces_per_step == 0
        step.close()


def test_the_eager_forward_of_two_ranks_is_that_of_one(models):
    alone, together = models
    step = together.build(Extend(), WIDTH, 1)
    with torch.inference_mode():
        assert close(alone.forward(chain(4, CONTEXT)).logits, step(chain(4, CONTEXT)).logits)
    assert (step.proof.allreduce, step.proof.allreduces_per_step) == ("gloo", 60)
    step.close()


def test_what_a_tree_keeps_is_kept_on_every_rank(models):
    alone, together = models
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]]).bool()
    tree = StepInput(torch.tensor([3, 4, 5]), CONTEXT + torch.tensor([0, 1, 1]), mask, CONTEXT)
    step = together.build(FusedAllreduce(), WIDTH, 1)
    after = []
    with torch.inference_mode():
        for model, run in ((alone, lambda inputs: alone.plan.run(*inputs)), (together, step)):
            model.cache.length = CONTEXT
            run(tree)
            model.cache.keep((0, 2))
            after.append(run(chain(1, CONTEXT + 2)).logits.clone())
    step.close()
    assert close(*after)


def test_a_way_to_sum_that_a_cpu_does_not_have_is_refused_and_the_ranks_live_on(models):
    alone, together = models
    message = r"verify\.allreduce=nccl: on a CPU, ranks sum with shared_memory or gloo"
    with pytest.raises(ValueError, match=message):
        together.build(GraphCaptured(allreduce="nccl"), 1, 1)
    with pytest.raises(ValueError, match="nothing, since there is one"):
        GraphCaptured(allreduce="gloo").build(alone, 1, 1)
    with pytest.raises(ValueError, match="one rank has nothing to reduce"):
        FusedAllreduce().build(alone, 1, 1)
    step = together.build(GraphCaptured(), 1, 1)
    with torch.inference_mode():
        assert len(step(chain(1, CONTEXT)).best) == 1
    step.close()
