"""A tiny random target that a head can learn in seconds."""

import torch

from pipeline.target.random_checkpoint import RandomCheckpoint
from verify.base import TargetShape

CPU = torch.device("cpu")
SHAPE = TargetShape(
    num_layers=8,
    hidden_size=32,
    intermediate_size=48,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    vocab_size=96,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    max_positions=512,
    tie_word_embeddings=False,
)


class Sure(RandomCheckpoint):
    """Random weights whose first choices are clear, as a trained model's are."""

    def tensor(self, name, device="cpu"):
        return super().tensor(name, device) * (6 if name == "lm_head.weight" else 1)


CHECKPOINT = Sure(SHAPE, torch.float32)
