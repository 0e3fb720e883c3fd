"""The batched target against the engine that measures, and what it writes."""

import pytest
import torch

from drafters.eagle3.data.generate import Writing, without_loop, write
from drafters.eagle3.train.target import Target
from pipeline.engine.torch.llama import KVCache, Llama
from pipeline.engine.torch.weights import dense_weights
from tests.drafters.eagle3.tiny import CHECKPOINT, CPU, SHAPE
from verify.base import StepInput

LAYERS = (1, 2, 3)


@pytest.fixture(scope="module")
def target():
    return Target(CHECKPOINT, CPU, torch.float32)


def engine_forward(tokens):
    """Logits and features of the engine's own eager forward."""
    weights = dense_weights(SHAPE, CHECKPOINT.tensor, torch.float32, CPU)
    cache = KVCache(SHAPE, len(tokens), torch.float32, CPU, SHAPE.num_kv_heads)
    model = Llama(SHAPE, weights, cache, LAYERS)
    rows = torch.arange(len(tokens))
    mask = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
    return model.forward(StepInput(torch.tensor(tokens), rows, mask, 0))


@torch.inference_mode()
def test_states_are_those_of_the_engine_whatever_stands_beside_them(target):
    tokens = torch.randint(0, SHAPE.vocab_size, (3, 17), generator=torch.Generator().manual_seed(0))
    lengths = (17, 9, 12)
    states = target.states(tokens, LAYERS)
    for row, length in enumerate(lengths):
        expected = engine_forward(tokens[row, :length].tolist())
        torch.testing.assert_close(
            states.features[row, :length], expected.features, rtol=1e-4, atol=1e-4
        )
        logits = target.logits(states.last[row, :length])
        torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-4)


def greedy(prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(engine_forward(tokens).best[-1]))
    return tokens[len(prompt) :]


@torch.inference_mode()
def test_a_batch_of_ragged_prompts_is_written_to_as_each_alone(target):
    prompts = [(1, 2, 3), (9, 8, 7, 6, 5, 4), (11,), (3, 1, 4, 1, 5)]
    expected = [greedy(prompt, 12) for prompt in prompts]
    found = write(target, prompts, Writing(12, 0.0, batch=3), frozenset(), seed=0)
    assert found == expected


@torch.inference_mode()
def test_sequences_that_end_are_cut_at_their_stop_and_leave_the_rest_alone(target):
    prompts = [(1, 2, 3), (9, 8, 7, 6), (11,), (3, 1, 4), (2, 2), (5, 6)]
    whole = [greedy(prompt, 20) for prompt in prompts]
    stops = frozenset({whole[0][2], whole[1][4], whole[2][1], whole[3][6]})
    found = write(target, prompts, Writing(20, 0.0, batch=8), stops, seed=0)
    for tokens, full in zip(found, whole, strict=True):
        ends = [place for place, token in enumerate(full) if token in stops]
        assert tokens == (full[: ends[0] + 1] if ends else full)


def test_draws_repeat_by_seed(target):
    prompts = [(1, 2, 3), (9, 8, 7, 6)]
    texts = [write(target, prompts, Writing(8, 1.5, 4), frozenset(), seed) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_loop_is_cut_and_a_text_without_one_is_not():
    text = list(range(100, 130))
    assert without_loop(text) == text
    looped = text + [1, 2, 3, 4] * 20
    assert without_loop(looped) == text + [1, 2, 3, 4] * 3
    assert without_loop([*text, *[7] * 50]) == [*text, 7, 7, 7]
    assert without_loop(text + [1, 2, 3] * 3) == text + [1, 2, 3] * 3, "too short to call a loop"
