"""Cells that users published because speculation was slower: what the verdict says of each."""

from itertools import pairwise

import pytest

from pipeline.roi.levers.accept_length import best_width
from pipeline.roi.numbers import parse
from pipeline.roi.scale.forward_cost import ScaleTarget
from pipeline.roi.verdict import from_numbers

# https://github.com/sgl-project/SpecForge/issues/339, Qwen3-30B-A3B, 2x H100, batch 1, plain 222.47
# tok/s: steps/top-k/draft tokens, tok/s, accept length.
SPECFORGE_339 = {
    "3/1/4": (159.78, 1.86),
    "3/3/8": (172.99, 2.2),
    "3/3/4": (207.62, 1.99),
    "7/4/16": (191.9, 2.52),
    "6/4/12": (171.54, 2.42),
    "8/8/60": (177.5, 3.2),
}


def verdict(**numbers):
    return from_numbers(parse([f"{key}={value}" for key, value in numbers.items()]))


@pytest.mark.parametrize("shape", SPECFORGE_339)
def test_every_published_shape_is_below_its_break_even(shape):
    tok_s, length = SPECFORGE_339[shape]
    at = verdict(baseline_tok_s=222.47, tok_s=tok_s, accept_length=length).situation

    assert at.speed_up < 1
    assert at.accept_length < at.levers.break_even
    assert 2.1 < at.levers.break_even < 4.1


def test_a_wider_tree_moves_break_even_as_fast_as_accept_length():
    narrow, wide = (
        verdict(baseline_tok_s=222.47, tok_s=tok_s, accept_length=length).situation
        for tok_s, length in (SPECFORGE_339["3/1/4"], SPECFORGE_339["8/8/60"])
    )

    gained = wide.accept_length - narrow.accept_length
    lost = wide.levers.break_even - narrow.levers.break_even
    assert gained > 1.3
    assert lost > gained, "1.34 tokens more, and break-even is 1.42 further away"


def test_a_mixture_of_experts_reads_most_of_its_experts_for_a_wide_tree():
    """https://github.com/Tencent/AngelSlim/issues/163 asks whether that makes verify dear."""
    qwen = ScaleTarget("Qwen3-30B-A3B", 2048, 48, 128, 8, 1.0, 0.0, 0.0, 0.0, 97, 970, "")

    assert qwen.distinct_experts(1) == 8
    assert qwen.distinct_experts(4) / 8 == pytest.approx(3.6, abs=0.05)
    assert qwen.distinct_experts(16) / 8 == pytest.approx(10.3, abs=0.05)
    assert qwen.distinct_experts(64) / 128 > 0.98


@pytest.mark.parametrize(
    ("lengths", "first_ratio", "last_ratio", "best_k"),
    [
        # https://github.com/vllm-project/vllm/issues/20780: accept length and step ratio at K = 2
        # to 7. The fastest published K are 4 (246.9 tok/s; 5: 242.1) and 3 (233.1; 2: 228.8).
        ((2.36, 2.79, 3.08, 3.32, 3.46, 3.54), 1.44, 2.15, (4, 5)),
        ((2.10, 2.29, 2.39, 2.43, 2.45, 2.47), 1.30, 1.82, (2, 3)),
    ],
    ids=["EAGLE-3", "EAGLE-1"],
)
def test_each_drafter_has_its_own_best_number_of_draft_tokens(
    lengths, first_ratio, last_ratio, best_k
):
    slope = (last_ratio - first_ratio) / 5
    survives = [(lengths[0] - 1) / 1.6]  # K = 1 was not published: 1 + a + a b with b = 0.6
    survives += [lengths[0] - 1 - survives[0]]
    survives += [b - a for a, b in pairwise(lengths)]
    rates = [survives[0], *(b / a for a, b in pairwise(survives))]

    width = best_width(rates, plain_ms=first_ratio - 2 * slope, row_ms=slope, draft_ms=0.0)

    assert width - 1 in best_k


def test_slower_at_a_higher_rank_count_is_a_step_that_grew():
    """https://github.com/sgl-project/sglang/issues/6949: 30 against 21 at tp 1, 59 against 61 at 4.

    The thread names no accept length; with the same head it is the same on both, so the step grew
    from 0.70 to 1.03 of it, in plain steps.
    """
    one = verdict(baseline_tok_s=21, tok_s=30, accept_length=2.0).situation
    four = verdict(baseline_tok_s=61, tok_s=59, accept_length=2.0).situation

    assert one.levers.break_even / 2.0 == pytest.approx(0.70, abs=0.005)
    assert four.levers.break_even / 2.0 == pytest.approx(1.03, abs=0.005)


def test_a_baseline_that_was_slowed_is_caught():
    """Public tables hold speed-ups above accept length: a verify step never beats a plain one."""
    clashes = verdict(baseline_tok_s=289, tok_s=1146, accept_length=2.0).clashes

    assert any("the baseline was slowed" in clash for clash in clashes)
