"""The head's mathematics against transformers' own Llama parts, put together as EAGLE-3 does."""

import pytest
import torch
from torch import nn

from drafters.eagle3.model import score
from drafters.eagle3.runner import EagerRunner
from drafters.eagle3.train.ttt import (
    DraftHead,
    StepMetrics,
    TargetBatch,
    _attend,
    accept_length,
    channel_scale,
)
from tests.drafters.eagle3.heads import SHAPE, random_head

llama = pytest.importorskip("transformers.models.llama.modeling_llama")
HEAD = random_head()
COUNT = 14


def drawn(*size, seed):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


EMBEDDING = drawn(SHAPE.vocab_size, SHAPE.hidden_size, seed=1)
FEATURES = drawn(COUNT, 3 * SHAPE.hidden_size, seed=2)
TOKENS = list(range(20, 20 + COUNT))


class Reference(nn.Module):
    """An EAGLE-3 layer of transformers' attention, feed-forward block, norms and rotary table."""

    def __init__(self):
        super().__init__()
        config = llama.LlamaConfig(
            hidden_size=SHAPE.hidden_size,
            intermediate_size=SHAPE.intermediate_size,
            num_attention_heads=SHAPE.num_heads,
            num_key_value_heads=SHAPE.num_kv_heads,
            head_dim=SHAPE.head_dim,
            rms_norm_eps=SHAPE.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": SHAPE.rope_theta},
        )
        config._attn_implementation = "eager"
        self.fc = nn.Linear(3 * SHAPE.hidden_size, SHAPE.hidden_size, bias=False)
        self.midlayer = nn.Module()
        self.midlayer.self_attn = llama.LlamaAttention(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            wide = getattr(self.midlayer.self_attn, name)
            wide = nn.Linear(2 * SHAPE.hidden_size, wide.out_features, bias=False)
            setattr(self.midlayer.self_attn, name, wide)
        self.midlayer.mlp = llama.LlamaMLP(config)
        for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
            norm = llama.LlamaRMSNorm(SHAPE.hidden_size, SHAPE.rms_norm_eps)
            setattr(self.midlayer, name, norm)
        self.norm = llama.LlamaRMSNorm(SHAPE.hidden_size, SHAPE.rms_norm_eps)
        self.lm_head = nn.Linear(SHAPE.hidden_size, SHAPE.draft_vocab_size, bias=False)
        self.rotary = llama.LlamaRotaryEmbedding(config)
        self.load_state_dict(HEAD.tensors, strict=True)

    def forward(self, embeds, features):
        hidden, layer = self.fc(features)[None], self.midlayer
        positions = torch.arange(len(features))[None]
        x = torch.cat((layer.input_layernorm(embeds[None]), layer.hidden_norm(hidden)), dim=-1)
        mask = torch.full((len(features), len(features)), float("-inf")).triu(1)[None, None]
        attended, _ = layer.self_attn(
            x, position_embeddings=self.rotary(x, positions), attention_mask=mask
        )
        hidden = hidden + attended
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return hidden[0], self.lm_head(self.norm(hidden))[0]


@torch.inference_mode()
def test_a_row_is_scored_as_by_transformers_parts():
    runner = EagerRunner(HEAD, EMBEDDING, 64, torch.float32)
    hidden, logits = Reference()(EMBEDDING[TOKENS], FEATURES)
    scored = runner.extend(TOKENS, FEATURES, 0)
    torch.testing.assert_close(scored.hidden[0], hidden[-1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scored.logits[0], logits[-1], rtol=1e-4, atol=1e-5)


def test_training_scores_the_rows_that_drafting_will():
    """A sequence of one batch against the runner: step 0 reads features, step k its own output."""
    tokens = torch.randint(0, SHAPE.vocab_size, (1, COUNT), generator=torch.Generator())
    learner = DraftHead(HEAD, torch.ones(3 * SHAPE.hidden_size), COUNT, steps=3)
    kept = []
    learner._mark = lambda weights, hidden, lesson, step: (
        kept.append(score(weights, SHAPE, hidden)[0].detach())
        or (torch.zeros(()), *torch.zeros(2, 1, COUNT, dtype=torch.bool))
    )
    empty = torch.zeros(0)
    learner(TargetBatch(EMBEDDING[tokens], FEATURES[None], empty, empty, empty, empty))
    words = tokens[0].tolist()
    for row in range(2, COUNT - 4):
        runner = EagerRunner(HEAD, EMBEDDING, 64, torch.float32)
        scored = runner.extend(words[1 : row + 2], FEATURES[: row + 1], 0)
        for step in range(3):
            torch.testing.assert_close(kept[step][row], scored.logits[0], rtol=1e-4, atol=1e-4)
            mask = torch.ones(1, step + 1, dtype=torch.bool)
            scored = runner.step([words[row + 2 + step]], scored.hidden, row + 1, mask)


def test_a_row_of_a_later_step_sees_no_other_rows_of_later_steps():
    query, *keys = drawn(4, 1, 1, 5, 8, seed=3)
    values = [torch.zeros(1, 1, 5, 8) for _ in range(3)]
    values[1][:, :, 3] = 1.0
    mixed = _attend(query, keys, values)
    assert mixed[0, 0, 3].abs().max() > 0
    assert mixed[0, 0, [0, 1, 2, 4]].abs().max() == 0


def test_the_accept_length_counts_right_drafts_up_to_the_first_wrong_one():
    right = torch.tensor([[[1, 1, 0, 1]], [[1, 0, 1, 1]], [[1, 1, 1, 0]]]).bool()
    asked = torch.ones(3, 1, 4, dtype=torch.bool)
    asked[1:, 0, 3] = False
    empty = torch.zeros(())
    accepted, drafts = accept_length(StepMetrics(empty, empty, right, asked))
    assert (int(accepted), int(drafts)) == (3 + 1 + 0 + 1, 4)


def test_the_channels_sizes_are_blind_to_massive_activations():
    features = drawn(400, 6, seed=4) * torch.tensor([1.0, 5.0, 20.0, 1.0, 1.0, 0.0])
    features[3] *= 1e4
    scale = channel_scale(features)
    torch.testing.assert_close(scale[:3], torch.tensor([1.0, 5.0, 20.0]) * 0.6745, rtol=0.2, atol=0)
    assert scale[5] > 0
