"""The decode loop on a tiny random model: whatever drafts, the output is the target's own."""

from functools import partial

import pytest
import torch

from drafters.base import Context, Draft
from drafters.ngram import Ngram
from drafters.none import NoDrafter
from pipeline.cell.cell import Sampling
from pipeline.engine.torch.decode import Decoder, tree_mask
from pipeline.engine.torch.llama import KVCache, Llama
from pipeline.engine.torch.prefill import eager_prefill
from pipeline.engine.torch.weights import dense_weights
from pipeline.target.random_checkpoint import RandomCheckpoint
from pipeline.workload.prompts import Prompt
from verify.base import TargetShape
from verify.extend import EagerStep
from verify.native.capture import TracedStep

SHAPE = TargetShape(
    num_layers=2,
    hidden_size=32,
    intermediate_size=48,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=24,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    max_positions=512,
    tie_word_embeddings=False,
)
PROMPT = Prompt("p", "chat", (3, 1, 4, 1, 5, 9, 2, 6))
CPU = torch.device("cpu")


def model(capacity: int = 160, capture_layers=()) -> Llama:
    checkpoint = RandomCheckpoint(SHAPE, torch.float32)
    weights = dense_weights(SHAPE, checkpoint.tensor, torch.float32, CPU)
    cache = KVCache(SHAPE, capacity, torch.float32, CPU, SHAPE.num_kv_heads)
    return Llama(SHAPE, weights, cache, capture_layers)


def decoder(drafter, target=None, step=None, stop=frozenset(), **sampling) -> Decoder:
    target = target or model()
    return Decoder(
        partial(eager_prefill, target.forward),
        step or EagerStep(target),
        drafter.start(None),  # these look at tokens alone
        target.cache,
        Sampling(**{"max_new_tokens": 60} | sampling),
        stop,
    )


class Everything(NoDrafter):
    """Proposes wrong tokens and right ones in a tree, from a list of what the target will say."""

    def __init__(self, truth):
        object.__setattr__(self, "truth", truth)

    def propose(self, context: Context) -> Draft:
        rest = self.truth[len(context.tokens) - len(PROMPT.tokens) :][:2]
        if len(rest) < 2:
            return Draft((), ())
        wrong = [(token + 1) % SHAPE.vocab_size for token in rest]
        #      root ─ wrong, root ─ right ─ wrong, right ─ right
        return Draft((wrong[0], rest[0], wrong[1], rest[1]), (-1, -1, 1, 1))


@torch.inference_mode()
def plain_tokens(**sampling) -> tuple[int, ...]:
    return decoder(NoDrafter(), **sampling).respond(PROMPT, 0).tokens


@pytest.mark.parametrize(
    "drafter",
    [Ngram(), Ngram(num_draft_tokens=7, breadth=3), Ngram(num_draft_tokens=1)],
    ids=["chain", "tree", "one"],
)
@torch.inference_mode()
def test_drafting_changes_the_number_of_steps_and_never_the_output(drafter):
    plain = decoder(NoDrafter()).respond(PROMPT, 0)
    drafted = decoder(drafter).respond(PROMPT, 0)
    assert drafted.tokens == plain.tokens
    assert len(drafted.committed) < len(plain.committed)
    assert sum(drafted.committed) == len(drafted.tokens) - 1


@torch.inference_mode()
def test_a_trees_accepted_branch_leaves_the_cache_as_plain_decoding_does():
    truth = plain_tokens()
    response = decoder(Everything(truth)).respond(PROMPT, 0)
    assert response.tokens == truth
    assert response.committed[:-1] == (3,) * (len(response.committed) - 1), (
        "both right drafts and the bonus"
    )


@torch.inference_mode()
def test_a_traced_step_of_fixed_width_gives_the_same_output():
    target = model()
    traced = TracedStep(target, width=4)
    response = decoder(Ngram(), target, traced).respond(PROMPT, 0)
    assert response.tokens == plain_tokens()
    assert traced.proof.graph_share == 1.0
    assert traced.proof.num_verify_steps == len(response.committed)


@torch.inference_mode()
def test_the_stop_token_ends_the_response_wherever_it_is_accepted():
    truth = plain_tokens()
    stop = truth[20]
    expected = truth[: truth.index(stop) + 1]
    for drafter in (NoDrafter(), Everything(truth)):
        response = decoder(drafter, stop=frozenset({stop})).respond(PROMPT, 0)
        assert response.tokens == expected
        assert response.finish == "stop"
        assert sum(response.committed) == len(expected) - 1


@torch.inference_mode()
def test_tokens_past_the_limit_are_not_counted():
    truth = plain_tokens()
    for limit in range(2, 9):
        response = decoder(Everything(truth), max_new_tokens=limit).respond(PROMPT, 0)
        assert response.tokens == truth[:limit]
        assert sum(response.committed) == limit - 1


@torch.inference_mode()
def test_every_step_has_one_entry_in_every_list():
    response = decoder(Ngram()).respond(PROMPT, 0)
    lists = (
        response.proposed,
        response.depth,
        response.verify_ms,
        response.draft_ms,
        response.step_ms,
    )
    assert {len(part) for part in lists} == {len(response.committed)}
    assert len(response.margins) == len(response.tokens)
    assert sum(response.step_ms) <= response.decode_ms


@torch.inference_mode()
def test_sampling_repeats_by_seed_and_differs_by_repetition():
    first = decoder(Ngram(), temperature=1.5).respond(PROMPT, 0)
    assert decoder(Ngram(), temperature=1.5).respond(PROMPT, 0).tokens == first.tokens
    assert decoder(Ngram(), temperature=1.5).respond(PROMPT, 1).tokens != first.tokens
    assert decoder(Ngram(), temperature=1.5, seed=1).respond(PROMPT, 0).tokens != first.tokens


@torch.inference_mode()
def test_features_are_the_states_of_every_token_read_since_the_last_proposal():
    seen: list[tuple[int, int]] = []

    class Spy(Everything):
        def begin(self, context):
            assert len(context.features) == len(PROMPT.tokens) == len(context.tokens) - 1

        def propose(self, context):
            seen.append((len(context.tokens), len(context.features)))
            return super().propose(context)

    decoder(Spy(plain_tokens()), model(capture_layers=(0, 1))).respond(PROMPT, 0)
    lengths, counts = zip(*seen, strict=True)
    assert counts[0] == 1, "the prompt's last; the others were read when the request began"
    assert all(b - a == n for a, b, n in zip(lengths, lengths[1:], counts[1:], strict=False))


def test_the_tree_mask_shows_each_row_itself_and_its_ancestors():
    mask = tree_mask(Draft((5, 6, 7, 9), (-1, -1, 0, 2)))
    assert mask.int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 1, 1],
    ]
