"""Triton's kernels against the reference operations; on a CPU they run in Triton's interpreter."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="Triton comes with torch for NVIDIA GPUs")

from pipeline.engine.torch import ops
from pipeline.engine.torch.triton_ops import attention, product, rowwise

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The interpreter has no bfloat16 products.
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float16
# bf16 carries 8 bits: rounding inputs and outputs leaves 2 to 4 parts in a thousand.
TOLERANCE = 1e-2


def drawn(*size, dtype=DTYPE):
    return torch.randn(size, device=DEVICE).to(dtype)


def error(out, exact):
    assert torch.isfinite(out).all()
    return float((out.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize(("width", "depth", "num_out"), [(1, 1024, 64), (5, 1280, 40), (16, 64, 9)])
def test_a_product_of_few_rows_is_near_float64(width, depth, num_out):
    x, weight = drawn(width, depth), drawn(num_out, depth)
    out = product.skinny_linear(x, weight, torch.float32)
    assert error(out, x.double() @ weight.double().T) < TOLERANCE


def test_a_rows_product_is_the_same_bits_at_every_width():
    x, weight = drawn(8, 512), drawn(96, 512)
    wide = product.skinny_linear(x, weight)
    for row in range(8):
        assert torch.equal(product.skinny_linear(x[row : row + 1], weight)[0], wide[row])


@pytest.mark.parametrize("hidden", [576, 1024])
def test_the_join_adds_and_norms_like_the_reference(hidden):
    delta, residual, weight = drawn(3, hidden), drawn(3, hidden), drawn(hidden)
    normed, total = rowwise.add_rms_norm(delta, residual, weight, 1e-5)
    exact = ops.add_rms_norm(*(t.double() for t in (delta, residual, weight)), 1e-5)
    assert error(normed, exact[0]) < TOLERANCE
    assert torch.equal(total, residual + delta)
    alone = rowwise.rms_norm(total, weight, 1e-5)
    assert torch.equal(alone, normed)


def test_the_gate_is_silu_times_up():
    gate_up = drawn(3, 2 * 1536)
    exact = ops.silu_and_multiply(gate_up.double())
    assert error(rowwise.silu_and_multiply(gate_up), exact) < TOLERANCE


def test_the_best_is_the_lowest_id_of_a_tie_and_the_margin_leads_the_second():
    logits = drawn(4, 5000, dtype=torch.float32)
    logits[0, 77] = logits[0, 4321] = 9.0
    best, margin = rowwise.best_and_margin(logits)
    top = logits.topk(2, dim=-1)
    assert best.tolist() == [77, *top.indices[1:, 0].tolist()]
    assert torch.equal(margin, top.values[:, 0] - top.values[:, 1])


def attention_case(width, start, num_heads=9, num_kv_heads=3, head_dim=64, capacity=700):
    qkv = drawn(width, (num_heads + 2 * num_kv_heads) * head_dim)
    keys, values = (drawn(num_kv_heads, capacity, head_dim) for _ in range(2))
    table = ops.rotary_table(capacity, head_dim, 1e4)
    positions = torch.arange(width) + start
    rotary = tuple(part[positions].to(DEVICE) for part in table)
    mask = torch.ones(width, width, dtype=torch.bool, device=DEVICE).tril()
    return qkv, keys, values, rotary, mask, torch.tensor(start, device=DEVICE)


def run_triton(qkv, keys, values, rotary, mask, start, num_heads=9):
    query = attention.rotate_and_store(qkv, rotary, start, keys, values, num_heads)
    return attention.attend(query, mask.view(torch.uint8), start, keys, values)


@pytest.mark.parametrize(("width", "start"), [(1, 0), (1, 63), (4, 61), (8, 300), (16, 640)])
def test_attention_over_the_cache_is_near_float64(width, start):
    qkv, keys, values, rotary, mask, at = attention_case(width, start)
    mask[-1, : width // 2] = False  # a tree's branch does not see its sibling
    mask[-1, -1] = True
    exact_keys, exact_values = keys.double(), values.double()
    rows = ops.step_rows(
        torch.zeros(width, dtype=torch.int64, device=DEVICE),
        mask, at, keys.shape[1], tuple(t.double() for t in rotary), torch.float64,
    )  # fmt: skip
    exact_query = ops.rotate_and_store(qkv.double(), rows, exact_keys, exact_values, 9)
    exact = ops.attend(exact_query, rows, exact_keys, exact_values)
    keys[:, start + width :] = values[:, start + width :] = float("nan")  # unused: never read
    out = run_triton(qkv, keys, values, rotary, mask, at)
    assert error(out, exact) < TOLERANCE
    used = slice(0, start + width)
    assert error(keys[:, used], exact_keys[:, used]) < TOLERANCE
    assert torch.equal(values[:, used].double(), exact_values[:, used])


def test_a_rows_attention_is_the_same_bits_at_every_width():
    qkv, keys, values, rotary, mask, at = attention_case(6, 250)
    wide = run_triton(qkv, keys, values, rotary, mask, at)
    for row in range(6):
        one = slice(row, row + 1)
        part = tuple(t[one] for t in rotary)
        out = run_triton(qkv[one], keys, values, part, mask[:1, :1], at + row)
        assert torch.equal(out[0], wide[row])
