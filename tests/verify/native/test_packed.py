import pytest
import torch

from tests.verify.native.dequantized import dequantize
from verify.native.packed import Packed, check, pack


def test_a_q4_1_block_holds_low_nibbles_first_and_adds_its_offset():
    block = torch.tensor([0.5, -1.0]).half().view(torch.uint8).tolist()  # d, m
    codes = [0x21] + [0] * 14 + [0xF3]  # elements 0 and 16 are 1 and 2, 15 and 31 are 3 and 15
    weights = dequantize(Packed("q4_1", torch.tensor([block + codes], dtype=torch.uint8), 1, 32))[0]
    assert weights[[0, 15, 16, 31]].tolist() == [-0.5, 0.5, 0.0, 6.5]
    assert weights[[1, 14, 17, 30]].tolist() == [-1.0] * 4


def test_a_q8_0_block_holds_signed_bytes_times_its_scale():
    block = torch.tensor([0.25]).half().view(torch.uint8).tolist()
    codes = [4, 0xFF, 0x80, 0x7F] + [0] * 28  # 4, -1, -128, 127
    weights = dequantize(Packed("q8_0", torch.tensor([block + codes], dtype=torch.uint8), 1, 32))[0]
    assert weights[:5].tolist() == [1.0, -0.25, -32.0, 31.75, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_packing_a_float_matrix_keeps_its_values(dtype):
    weight = torch.randn(3, 64).to(dtype)
    assert torch.equal(dequantize(pack(weight)), weight.float())


def test_a_matrix_of_integers_is_refused():
    with pytest.raises(ValueError, match=r"torch.int64.*takes matrices of float16"):
        pack(torch.ones(2, 32, dtype=torch.int64))


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (Packed("q4_0", torch.zeros(2, 18, dtype=torch.uint8), 2, 32), "format q4_0, known are"),
        (Packed("q8_0", torch.zeros(3, 34, dtype=torch.uint8), 3, 32), r"needs \[2, 32\]"),
        (Packed("q8_0", torch.zeros(2, 33, dtype=torch.uint8), 2, 32), r"contiguous \[2, 34\]"),
    ],
)
def test_a_weight_that_would_be_misread_is_refused_by_name(packed, message):
    with pytest.raises(ValueError, match=f"the_name: .*{message}"):
        check(packed, "the_name", (2, 32))


def test_columns_must_fill_blocks():
    with pytest.raises(ValueError, match="40 columns, the native step needs a multiple of 32"):
        check(pack(torch.ones(2, 40)), "w", (2, 40))
