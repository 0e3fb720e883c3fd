"""Triton's kernels against the reference operations; on a CPU they run in Triton's interpreter."""

import pytest
import torch

DEVICE_IS_GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="Triton comes with torch for NVIDIA GPUs")
pytest.importorskip("cuda.bindings", reason="as does the driver interface")

from pipeline.engine.torch import kernels  # noqa: E402
from pipeline.engine.torch.gpu import attention, product, rowwise  # noqa: E402

REFERENCE = kernels.Kernels()
DEVICE = "cuda" if DEVICE_IS_GPU else "cpu"
# The interpreter has no bfloat16 products.
DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float16
# bf16 carries 8 bits: rounding inputs and outputs leaves 2 to 4 parts in a thousand.
TOLERANCE = 1e-2


def drawn(*size, dtype=DTYPE):
    return torch.randn(size, device=DEVICE).to(dtype)


def error(out, exact):
    assert torch.isfinite(out).all()
    return float((out.double() - exact).norm() / exact.norm())


@pytest.mark.gpu
@pytest.mark.skipif(not DEVICE_IS_GPU, reason="CUDA C++ needs the GPU")
@pytest.mark.parametrize("width", [1, 5, 8, 16])
@pytest.mark.parametrize(("depth", "num_out"), [(4096, 96), (576, 1000), (14336, 64)])
def test_a_product_of_few_rows_is_near_float64(width, depth, num_out):
    x, weight = drawn(width, depth), drawn(num_out, depth)
    exact = x.double() @ weight.double().T
    assert error(product.skinny_product(x, weight), exact) < TOLERANCE
    assert error(product.skinny_product(x, weight, torch.float32), exact) < TOLERANCE


@pytest.mark.gpu
@pytest.mark.skipif(not DEVICE_IS_GPU, reason="CUDA C++ needs the GPU")
def test_a_rows_product_is_the_same_bits_at_every_width():
    x, weight = drawn(16, 4096), drawn(96, 4096)
    wide = product.skinny_product(x, weight)
    for row in range(16):
        assert torch.equal(product.skinny_product(x[row : row + 1], weight)[0], wide[row])


@pytest.mark.parametrize("hidden", [576, 1024])
def test_the_join_adds_and_norms_like_the_reference(hidden):
    delta, residual, weight = drawn(3, hidden), drawn(3, hidden), drawn(hidden)
    normed, total = rowwise.add_rms_norm(delta, residual, weight, 1e-5)
    exact = REFERENCE.add_rms_norm(*(t.double() for t in (delta, residual, weight)), 1e-5)
    assert error(normed, exact[0]) < TOLERANCE
    assert torch.equal(total, residual + delta)
    alone = rowwise.rms_norm(total, weight, 1e-5)
    assert torch.equal(alone, normed)


@pytest.mark.gpu
@pytest.mark.skipif(not DEVICE_IS_GPU, reason="CUDA C++ needs the GPU")
@pytest.mark.parametrize("width", [1, 8, 11])
def test_the_gated_product_is_silu_times_up(width):
    x, weight = drawn(width, 1024), drawn(2 * 344, 1024)
    exact = REFERENCE.gated(x.double(), weight.double())
    assert error(product.skinny_product(x, weight, gated=True), exact) < TOLERANCE


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
    table = kernels.rotary_table(capacity, head_dim, 1e4)
    positions = torch.arange(width) + start
    rotary = tuple(part[positions].to(DEVICE) for part in table)
    mask = torch.ones(width, width, dtype=torch.bool, device=DEVICE).tril()
    tokens = torch.zeros(width, dtype=torch.int64, device=DEVICE)
    at = torch.tensor(start, device=DEVICE)
    rows = REFERENCE.step_rows(tokens, mask, at, start + width, rotary, torch.float64)
    return qkv, rows, keys, values


def run_attention(qkv, rows, keys, values):
    rows = rows._replace(mask=rows.mask.view(torch.uint8))
    return attention.attend(qkv, rows, keys, values, 9)


@pytest.mark.parametrize(("width", "start"), [(1, 0), (1, 63), (4, 61), (8, 300), (16, 640)])
def test_attention_over_the_cache_is_near_float64(width, start):
    qkv, rows, keys, values = attention_case(width, start)
    # A tree's branch does not see its sibling.
    rows.mask[-1, : width // 2] = False
    rows.mask[-1, -1] = True
    bias = kernels.attention_bias(rows.mask, rows.start, start + width, torch.float64)
    exact_rows = rows._replace(bias=bias, cos=rows.cos.double(), sin=rows.sin.double())
    exact_keys, exact_values = keys.double(), values.double()
    exact = REFERENCE.attend(qkv.double(), exact_rows, exact_keys, exact_values, 9)
    keys[:, start:] = values[:, start:] = float("nan")  # unused: overwritten or never read
    assert error(run_attention(qkv, rows, keys, values), exact) < TOLERANCE
    used = slice(0, start + width)
    assert error(keys[:, used], exact_keys[:, used]) < TOLERANCE
    assert torch.equal(values[:, used].double(), exact_values[:, used])


def test_a_rows_attention_is_the_same_bits_at_every_width():
    qkv, rows, keys, values = attention_case(6, 250)
    wide = run_attention(qkv, rows, keys, values)
    for row in range(6):
        one = slice(row, row + 1)
        alone = rows._replace(
            start=rows.start + row, cos=rows.cos[one], sin=rows.sin[one], mask=rows.mask[:1, :1]
        )
        assert torch.equal(run_attention(qkv[one], alone, keys, values)[0], wide[row])
