"""Compile a CUDA source with NVRTC, which comes with torch, and launch its kernel."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from torch import Tensor


class CudaKernel:
    """One compiled kernel on one device; its launches may overlap the kernel before."""

    def __init__(self, function: Any) -> None:
        """Bind the driver's handle."""
        self._function = function
        self._config = driver.CUlaunchConfig()
        self._config.gridDimY = self._config.gridDimZ = 1
        self._config.blockDimY = self._config.blockDimZ = 1
        overlap = driver.CUlaunchAttribute()
        overlap.id = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        overlap.value.programmaticStreamSerializationAllowed = 1
        self._config.attrs = [overlap]
        self._config.numAttrs = 1

    def __call__(self, grid: int, block: int, *arguments: Tensor | int) -> None:
        """Launch on the current stream; tensors, [...], pass as pointers, integers as 32 bits."""
        values = tuple(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments)
        types = tuple(ctypes.c_void_p if isinstance(a, Tensor) else ctypes.c_int for a in arguments)
        self._config.gridDimX, self._config.blockDimX = grid, block
        self._config.hStream = torch.cuda.current_stream().cuda_stream
        _checked(driver.cuLaunchKernelEx(self._config, self._function, (values, types), 0))


@cache
def cuda_kernel(source: Path, name: str, device: int, **defines: str | int) -> CudaKernel:
    """Return the kernel `name` of a source, compiled for a device.

    Args:
        source: The `.cu` file; it includes nothing.
        name: An `extern "C"` kernel.
        device: Index of the device.
        defines: Macros.

    Raises:
        RuntimeError: The source does not compile, or the driver refuses it.
    """
    major, minor = torch.cuda.get_device_capability(device)
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # makes torch's context the current one
        module = _checked(driver.cuModuleLoadData(compiled(source, f"{major}{minor}", **defines)))
        return CudaKernel(_checked(driver.cuModuleGetFunction(module, name.encode())))


def compiled(source: Path, architecture: str, **defines: str | int) -> bytes:
    """Return the machine code of a source; needs no GPU.

    Raises:
        RuntimeError: The source does not compile.
    """
    text = source.read_bytes()
    program = _checked(nvrtc.nvrtcCreateProgram(text, source.name.encode(), 0, [], []))
    options = [f"-arch=sm_{architecture}", *(f"-D{key}={value}" for key, value in defines.items())]
    encoded = [option.encode() for option in options]
    status = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)[0]
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = bytes(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"{source.name} does not compile: {log.decode(errors='replace')}")
    code = bytes(_checked(nvrtc.nvrtcGetCUBINSize(program)))
    _checked(nvrtc.nvrtcGetCUBIN(program, code))
    return code


def _checked(answer: tuple[Any, ...]) -> Any:
    """Return what a call of the driver or of NVRTC gave.

    Raises:
        RuntimeError: It failed.
    """
    if answer[0].value:
        raise RuntimeError(f"CUDA: {answer[0].name}")
    return answer[1] if len(answer) > 1 else None
