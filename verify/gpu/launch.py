"""How kernels are launched: back to back, each one's start overlapping the end of the one before.

Programmatic dependent launch (Hopper and later) lets a kernel's blocks start while the kernel
before still runs. A block may then fetch weights, which nobody writes, but must wait before it
touches anything else. Every kernel here waits, so completion is transitive along the stream.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton.language as tl
from triton import jit, knobs


@cache
def overlap(device: torch.device) -> dict[str, Any]:
    """Return launch arguments: whether the device can overlap kernels of one stream."""
    can = not knobs.runtime.interpret and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"OVERLAP": can, "launch_pdl": can} if can else {"OVERLAP": False}


@jit
def begin(OVERLAP: tl.constexpr) -> None:
    """Let the next kernel's blocks start as soon as there is room for them."""
    if OVERLAP:
        tl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; // $0", "=r", [], tl.int32, is_pure=False, pack=1
        )


@jit
def wait(OVERLAP: tl.constexpr) -> None:
    """Wait until all kernels before are done and what they wrote is visible."""
    if OVERLAP:
        tl.inline_asm_elementwise(
            "griddepcontrol.wait; // $0", "=r", [], tl.int32, is_pure=False, pack=1
        )
