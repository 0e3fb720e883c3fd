"""The captured step on a GPU: pads, replays, counts, and says what the eager forward says."""

import pytest
import torch

from pipeline.engine.torch.parallel.shards import shards
from pipeline.engine.torch.weights import DenseLoader
from pipeline.target.random_checkpoint import RandomCheckpoint
from verify.base import StepInput, TargetShape
from verify.extend import Extend
from verify.fused_allreduce import FusedAllreduce
from verify.graph_captured import GraphCaptured

GPU = torch.cuda.is_available()
SHAPE = TargetShape(
    num_layers=3,
    hidden_size=512,
    intermediate_size=1024,
    num_heads=8,
    num_kv_heads=2,
    head_dim=64,
    vocab_size=1000,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    max_positions=512,
    tie_word_embeddings=False,
)
TREE = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]]).bool()


def step_input(width, start, mask=None):
    draw = torch.Generator().manual_seed(start)
    tokens = torch.randint(SHAPE.vocab_size, (width,), generator=draw)
    mask = torch.ones(width, width, dtype=torch.bool).tril() if mask is None else mask
    return StepInput(tokens, mask.sum(1) - 1 + start, mask, start)


@pytest.fixture
def model():
    checkpoint = RandomCheckpoint(SHAPE, torch.bfloat16)
    loader = DenseLoader(checkpoint, 256, torch.bfloat16, capture_layers=(0, 2))
    return loader(shards(SHAPE, 1)[0], torch.device("cuda", 0) if GPU else torch.device("cpu"))


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="a CUDA graph needs a GPU")
def test_a_ragged_draft_is_padded_and_gives_the_bits_of_the_eager_forward(model):
    step = GraphCaptured().build(model, 4, 1)
    with torch.inference_mode():
        model.forward(step_input(60, 0))
        for inputs in (step_input(4, 60), step_input(1, 64), step_input(3, 65, TREE)):
            eager, captured = model.forward(inputs), step(inputs)
            assert torch.equal(captured.logits, eager.logits)
            assert torch.equal(captured.features, eager.features)
            assert torch.equal(captured.best, eager.logits.argmax(-1).cpu())
            top = eager.logits.topk(2).values.cpu()
            assert torch.equal(captured.margin, top[:, 0] - top[:, 1])
    proof = step.proof
    assert (proof.capture, proof.num_verify_steps, proof.graph_share) == ("cuda_graph", 3, 1.0)
    assert GraphCaptured().contradiction(proof) is None
    step.reset_counts()
    assert step.proof.num_verify_steps == 0
    step.close()


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="a CUDA graph needs a GPU")
def test_verifying_a_chain_gives_the_bits_of_decoding_it(model):
    decode, verify = GraphCaptured().build(model, 1, 1), Extend().build(model, 8, 1)
    chain = step_input(8, 60)
    with torch.inference_mode():
        model.forward(step_input(60, 0))
        together = verify(chain).logits.clone()
        for row in range(8):
            one = StepInput(
                chain.tokens[row : row + 1],
                chain.positions[row : row + 1],
                torch.ones(1, 1, dtype=torch.bool),
                60 + row,
            )
            assert torch.equal(decode(one).logits[0], together[row])
    decode.close()


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="a CUDA graph needs a GPU")
def test_a_step_wider_than_the_cache_is_refused(model):
    with pytest.raises(ValueError, match="a step of 300 rows does not fit a cache of 256 slots"):
        GraphCaptured().build(model, 300, 1)


def test_one_rank_has_nothing_to_fuse(model):
    with pytest.raises(ValueError, match=r"set parallelism\.tp=2 or more"):
        FusedAllreduce().build(model, 4, 1)
