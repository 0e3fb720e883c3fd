import pytest
import torch

from tests.verify.native.dequantized import dequantize
from tests.verify.native.llama import random_packed
from verify.native.packed import FORMATS, Linear

ROWS, COLS = 45, 160  # outputs that fill no tile shape evenly; five blocks of columns


@pytest.fixture(scope="module", params=FORMATS)
def packed(request):
    return random_packed(request.param, ROWS, COLS, torch.Generator().manual_seed(1))


def test_a_row_of_zeros_and_a_one_reads_the_exact_weights(packed, library):
    chosen = torch.eye(COLS)[::7].contiguous()
    out = Linear(packed, 1, library)(chosen)
    assert torch.equal(out, dequantize(packed).T[::7])


def test_the_product_agrees_with_float64(packed, library):
    x = torch.randn(11, COLS)
    exact = x.double() @ dequantize(packed).double().T
    # Rounding of a chain of 160 fused multiply-adds in 8 lanes: far below 160 * 2^-24.
    bound = 160 * 2.0**-24 * (x.double().abs() @ dequantize(packed).double().abs().T)
    assert bool(((Linear(packed, 1, library)(x) - exact).abs() <= bound).all())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_has_the_same_bits_in_any_company(packed, library, threads):
    x = torch.randn(16, COLS)
    alone = Linear(packed, 1, library)
    rows = torch.cat([alone(x[i : i + 1]) for i in range(16)])
    linear = Linear(packed, threads, library)
    for count in range(1, 17):
        assert torch.equal(linear(x[:count].contiguous()), rows[:count])


def test_a_given_output_is_filled_and_returned(packed, library):
    x, out = torch.randn(2, COLS), torch.empty(2, ROWS)
    linear = Linear(packed, 1, library)
    assert linear(x, out=out) is out
    assert torch.equal(out, linear(x))


def test_nan_reaches_only_its_own_row(packed, library):
    x = torch.randn(9, COLS)
    x[4, 3] = float("nan")
    out = Linear(packed, 1, library)(x)
    assert out.isnan().all(1).tolist() == [i == 4 for i in range(9)]
    assert not out[5:].isnan().any()


def test_shapes_and_layouts_that_do_not_fit_are_refused(library):
    linear = Linear(random_packed("f32", 4, 32, torch.Generator()), 1, library)
    with pytest.raises(ValueError, match=r"the weight is \[4, 32\]"):
        linear(torch.ones(1, 64))
    with pytest.raises(ValueError, match="contiguous float32"):
        linear(torch.ones(32, 2).T)
