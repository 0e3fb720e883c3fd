"""What packed weights stand for: the reference of the C code, bit for bit."""

import torch

from verify.native.packed import FORMATS

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}


def dequantize(packed):
    """Return the weights as [rows, cols] float32."""
    shape = (packed.rows, packed.cols)
    if packed.fmt in DTYPES:
        return packed.data.view(DTYPES[packed.fmt]).float().view(shape)
    blocks = packed.data.view(-1, FORMATS[packed.fmt][1])
    scale = blocks[:, :2].contiguous().view(torch.float16).float()
    if packed.fmt == "q8_0":
        return (blocks[:, 2:].view(torch.int8).float() * scale).view(shape)
    offset = blocks[:, 2:4].contiguous().view(torch.float16).float()
    codes = blocks[:, 4:]
    return (torch.cat([codes & 15, codes >> 4], dim=1).float() * scale + offset).view(shape)
