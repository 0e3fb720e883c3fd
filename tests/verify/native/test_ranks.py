"""Two real processes sum over shared memory: right, alike to the bit, and never for ever."""

import subprocess
import sys
import threading
import time

import pytest
import torch

from tests.verify.native import ranks_at_work as work
from tests.verify.native.llama import forward, normalise, random_weights
from verify.native.plan import Plan
from verify.native.ranks import Place, RankLost, RankMemory, Sizes


@pytest.fixture(scope="module")
def both(library, tmp_path_factory):
    """What rank 0 computed in this process, and rank 1 in its own."""
    folder = tmp_path_factory.mktemp("ranks")
    module, rendezvous = "tests.verify.native.ranks_at_work", str(folder / "meet")
    other = subprocess.Popen([sys.executable, "-m", module, folder, rendezvous])
    found = work.at_work(0, library, rendezvous)
    assert other.wait(600) == 0
    return found, torch.load(folder / "rank1.pt")


@pytest.mark.parametrize("way", work.WAYS)
def test_a_sum_with_residual_and_norm_is_that_of_float64_in_every_repeat(both, way):
    for width in work.WIDTHS:
        for repeat in range(work.REPEATS):
            deltas, residual, weight = work.parts_of(width, 1000 * width + repeat)
            total = residual.double() + deltas.double().sum(0)
            exact = normalise(total, weight.double(), work.EPS)
            normed, summed = both[0]["joins"][way, width, repeat]
            assert (summed - total).norm() < 1e-6 * total.norm()
            assert (normed - exact).norm() < 1e-6 * exact.norm()


def test_both_ranks_and_all_ways_have_the_same_bits(both):
    first, second = (found["joins"] for found in both)
    for (way, *case), own in first.items():
        for a, b, c in zip(own, second[way, *case], first["fused", *case], strict=True):
            assert torch.equal(a, b)
            assert torch.equal(a, c)


def test_a_tree_step_of_two_ranks_agrees_with_a_plain_llama(both):
    weights, last = random_weights(work.WHOLE), work.CONTEXT + 4
    mask = torch.ones(last, last, dtype=torch.bool).tril()
    mask[-2, -3] = mask[-1, -2] = False
    positions = torch.cat([torch.arange(work.CONTEXT), work.CONTEXT + torch.tensor([0, 1, 1, 2])])
    tokens = torch.arange(last) % work.WHOLE.vocab_size
    exact, inputs = forward(work.WHOLE, weights, tokens, positions, mask)
    features = torch.cat([inputs[0], inputs[2]], 1)[-4:]
    logits, best, margin, captured = both[0]["steps"]["fused"]
    top = exact[-4:].topk(2).values
    assert (logits - exact[-4:]).norm() < 1e-5 * exact[-4:].norm()
    assert (captured - features).norm() < 1e-5 * features.norm()
    assert torch.equal(best, exact[-4:].argmax(-1))
    assert (margin - (top[:, 0] - top[:, 1])).abs().max() < 1e-4


def test_a_step_has_the_same_bits_on_both_ranks_by_every_way_and_number_of_threads(both):
    wanted = both[0]["steps"]["fused"]
    for found in both:
        for threads in ("steps", "two threads"):
            for way in work.WAYS:
                for part, want in zip(found[threads][way], wanted, strict=True):
                    assert torch.equal(part, want)


def lonely_plan(library, timeout_s):
    """Rank 0 of two, whose other rank never comes."""
    shape, sizes = work.SHAPE, Sizes(64, 1, work.SHAPE.hidden_size, work.SHAPE.vocab_size)
    place = Place(0, 2, range(shape.vocab_size))
    memory = RankMemory(place, sizes, str, lambda _: None, timeout_s)
    cache = torch.zeros(shape.num_layers, shape.num_kv_heads, 16, shape.head_dim)
    weights = random_weights(shape)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    plan = Plan(
        work.replace(shape, tie_word_embeddings=False),
        weights,
        cache,
        cache.clone(),
        threads=1,
        max_width=1,
        capture_layers=(),
        library=library,
        ranks=memory,
    )
    return plan.summing("fused")


def run(plan):
    one = torch.ones(1, dtype=torch.int64)
    plan.run(one, one, torch.ones(1, 1, dtype=torch.bool), 1)


def test_a_rank_that_does_not_come_ends_the_step_after_the_timeout_and_every_later_one(library):
    plan = lonely_plan(library, timeout_s=2)
    began = time.perf_counter()
    with pytest.raises(RankLost, match=r"rank 1 did not come .* hung for 2 s"):
        run(plan)
    assert time.perf_counter() - began >= 2
    began = time.perf_counter()
    with pytest.raises(RankLost, match="rank 1 did not come"):
        run(plan)
    assert time.perf_counter() - began < 2, "it is not waited for again"


def test_a_rank_that_is_known_to_have_ended_is_not_waited_for(library):
    plan = lonely_plan(library, timeout_s=60)
    threading.Timer(0.1, plan.ranks.lose, (1,)).start()
    with pytest.raises(RankLost, match="rank 1 did not come"):
        run(plan)


def test_a_library_that_fails_is_named(library):
    plan = lonely_plan(library, timeout_s=60).summing("gloo")

    def fail(_):
        raise RuntimeError("connection closed by peer")

    plan.ranks._library = fail
    with pytest.raises(RankLost, match="could not sum: connection closed by peer"):
        run(plan)
