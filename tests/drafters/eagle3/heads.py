"""Small random heads for tests."""

import torch

from drafters.eagle3.checkpoint import Head
from drafters.eagle3.shape import HeadShape, tensor_shapes
from drafters.vocab.maps import VocabMap

SHAPE = HeadShape(
    hidden_size=32,
    intermediate_size=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=96,
    draft_vocab_size=40,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    max_positions=512,
)


def random_head(seed=0, shape=SHAPE, capture_ids=(0, 1, 2)) -> Head:
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.rand(size, generator=generator) + 0.5
        if len(size) == 1
        else torch.randn(size, generator=generator) * size[1] ** -0.5
        for name, size in tensor_shapes(shape).items()
    }
    ids = torch.randperm(shape.vocab_size, generator=generator)[: shape.draft_vocab_size]
    return Head(shape, tensors, VocabMap(ids.sort().values, shape.vocab_size), capture_ids)
