from dataclasses import replace

import pytest
import torch

from tests.verify.native.llama import SHAPE, forward, random_weights
from verify.native.plan import Plan

SLOTS, CONTEXT = 160, 21
GENERATOR = torch.Generator().manual_seed(5)
TOKENS = torch.randint(0, SHAPE.vocab_size, (140,), generator=GENERATOR)
POSITIONS = torch.arange(140)
CHAIN = torch.ones(140, 140, dtype=torch.bool).tril()
# A tree after the root: 1 and 2 are its children, 3 and 4 are children of 1, 5 of 2, 6 of 4.
PARENTS = [-1, 0, 0, 1, 1, 2, 4]


def make_plan(library, *, shape=SHAPE, weights=None, threads=1, capture=(0, 2), max_width=16):
    weights = weights or random_weights(shape)
    cache = torch.full((shape.num_layers, shape.num_kv_heads, SLOTS, shape.head_dim), torch.nan)
    return Plan(
        shape,
        weights,
        cache,
        cache.clone(),
        threads=threads,
        max_width=max_width,
        capture_layers=capture,
        library=library,
    )


def tree():
    """Mask and depth of each node of PARENTS."""
    mask, depth = torch.eye(7, dtype=torch.bool), [0] * 7
    for node, parent in enumerate(PARENTS[1:], start=1):
        mask[node] |= mask[parent]
        depth[node] = depth[parent] + 1
    return mask, torch.tensor(depth)


def run_tree(plan):
    mask, depth = tree()
    plan.prefill(TOKENS[:CONTEXT], POSITIONS[:CONTEXT])
    tokens = TOKENS[CONTEXT : CONTEXT + 7]
    return plan.run(tokens, CONTEXT + depth, mask, CONTEXT)


def close(actual, exact):
    return ((actual - exact).abs().max() / exact.abs().max()).item() < 1e-4


@pytest.mark.parametrize("fmt", ["q4_1", "bf16"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_tree_step_after_a_context_agrees_with_a_plain_llama(library, fmt, tied):
    shape = replace(SHAPE, tie_word_embeddings=tied)
    weights = random_weights(shape, fmt)
    out = run_tree(make_plan(library, shape=shape, weights=weights, threads=2))
    mask, depth = tree()
    whole = torch.ones(CONTEXT + 7, CONTEXT + 7, dtype=torch.bool).tril()
    whole[CONTEXT:, CONTEXT:] = mask
    positions = torch.cat([POSITIONS[:CONTEXT], CONTEXT + depth])
    logits, inputs = forward(shape, weights, TOKENS[: CONTEXT + 7], positions, whole)
    assert close(out.logits, logits[CONTEXT:])
    assert close(out.features, torch.cat([inputs[0], inputs[2]], 1)[CONTEXT:])


def test_grouped_heads_of_another_size_agree_with_a_plain_llama(library):
    shape = replace(SHAPE, num_heads=4, num_kv_heads=2, head_dim=80, num_layers=2)
    weights = random_weights(shape)
    plan = make_plan(library, shape=shape, weights=weights, threads=2, capture=())
    out = plan.prefill(TOKENS[:70], POSITIONS[:70])
    logits, _ = forward(shape, weights, TOKENS[:70], POSITIONS[:70], CHAIN[:70, :70])
    assert close(out.logits, logits[-1:])
    assert out.features is None


def test_prefill_in_chunks_has_the_bits_of_one_token_at_a_time(library):
    chunked = make_plan(library, threads=2)
    whole = chunked.prefill(TOKENS, POSITIONS)
    single = make_plan(library)
    features = []
    for i in range(140):
        step = single.run(TOKENS[i : i + 1], POSITIONS[i : i + 1], CHAIN[:1, :1], i)
        features.append(step.features.clone())
    assert torch.equal(whole.logits, step.logits)
    assert torch.equal(whole.best, step.best)
    assert torch.equal(whole.margin, step.margin)
    assert torch.equal(whole.features, torch.cat(features))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_row_has_the_same_bits_at_any_width_and_thread_count(library, threads):
    single, plan = make_plan(library), make_plan(library, threads=threads)
    for each in (single, plan):
        each.prefill(TOKENS[:CONTEXT], POSITIONS[:CONTEXT])
    logits = []
    for i in range(CONTEXT, CONTEXT + 16):
        step = single.run(TOKENS[i : i + 1], POSITIONS[i : i + 1], CHAIN[:1, :1], i)
        logits.append(step.logits.clone())
    for width in range(1, 17):
        rows = slice(CONTEXT, CONTEXT + width)
        step = plan.run(TOKENS[rows], POSITIONS[rows], CHAIN[:width, :width], CONTEXT)
        assert torch.equal(step.logits, torch.cat(logits[:width]))


def test_a_branch_of_a_tree_has_the_bits_of_the_same_tokens_in_a_chain(library):
    in_tree = run_tree(make_plan(library, threads=2)).logits[[0, 1, 4, 6]]
    branch = torch.cat([TOKENS[:CONTEXT], TOKENS[CONTEXT + torch.tensor([0, 1, 4, 6])]])
    plan = make_plan(library)
    plan.prefill(branch[:CONTEXT], POSITIONS[:CONTEXT])
    rows = slice(CONTEXT, CONTEXT + 4)
    assert torch.equal(
        plan.run(branch[rows], POSITIONS[rows], CHAIN[:4, :4], CONTEXT).logits, in_tree
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_best_is_the_lowest_id_of_a_tie_and_margin_the_lead(library, threads):
    shape = replace(SHAPE, tie_word_embeddings=False)
    weights = random_weights(shape)
    head = weights["lm_head.weight"]
    out = make_plan(library, shape=shape, weights=weights, threads=threads).prefill(
        TOKENS[:5], POSITIONS[:5]
    )
    first, second = out.logits[0].topk(2).values
    best = int(out.best)
    assert best == int(out.logits[0].argmax())
    assert out.margin.item() == (first - second).item()

    head[[3, 97]] = head[best].clone()
    tied = make_plan(library, shape=shape, weights=weights, threads=threads).prefill(
        TOKENS[:5], POSITIONS[:5]
    )
    assert int(tied.best) == min(3, best)
    assert tied.margin.item() == 0.0


def test_two_steps_of_one_plan_share_the_cache_with_its_owner(library):
    shape, weights = SHAPE, random_weights(SHAPE)
    cache = torch.zeros(shape.num_layers, 1, SLOTS, shape.head_dim)
    values = cache.clone()
    plan = Plan(
        shape,
        weights,
        cache,
        values,
        threads=1,
        max_width=4,
        capture_layers=(),
        library=library,
    )
    plan.prefill(TOKENS[:3], POSITIONS[:3])
    assert bool((cache[:, :, :3] != 0).all())
    assert not cache[:, :, 3:].any()
    assert not values[:, :, 3:].any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": torch.tensor([101])}, "a token id outside the vocabulary"),
        ({"positions": torch.tensor([SLOTS])}, "a position outside the key-value cache"),
        ({"mask": torch.zeros(1, 1, dtype=torch.bool)}, "does not attend itself"),
        ({"start": SLOTS}, "slots 160 to 160: the key-value cache has 160"),
    ],
)
def test_inputs_out_of_range_are_refused(library, change, message):
    good = {
        "tokens": torch.tensor([1]),
        "positions": torch.tensor([0]),
        "mask": torch.ones(1, 1, dtype=torch.bool),
        "start": 0,
    }
    with pytest.raises(ValueError, match=message):
        make_plan(library).run(**{**good, **change})


def test_more_rows_than_the_plan_was_made_for_are_refused(library):
    plan = make_plan(library, max_width=2)
    with pytest.raises(ValueError, match="a step of 3 rows: this plan takes 1 to 2"):
        plan.run(TOKENS[:3], POSITIONS[:3], CHAIN[:3, :3], 0)


def test_a_missing_weight_is_named(library):
    weights = random_weights(SHAPE)
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ValueError, match=r"model.layers.1.mlp.up_proj.weight: missing"):
        make_plan(library, weights=weights)


def test_a_shape_that_does_not_fill_vectors_is_refused(library):
    with pytest.raises(ValueError, match=r"head_dim=24.*use verify=extend"):
        make_plan(library, shape=replace(SHAPE, head_dim=24))


def test_a_capture_layer_that_the_target_lacks_is_refused(library):
    with pytest.raises(ValueError, match=r"capture_layers=\(3,\): the target has 3 layers"):
        make_plan(library, capture=(3,))
