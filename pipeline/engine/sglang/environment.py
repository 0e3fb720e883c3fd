"""The environment of a server: what keeps the GPUs safe, and what our plugin is told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

from drafters.base import ServesSglang
from pipeline.cell.cell import Cell
from pipeline.engine.sglang.arguments import ALGORITHM, BREADTH, ServerArguments
from verify import sglang_plugin as plugin

# Plain tensor parallelism asks for NVLink multicast by itself in every version; these say no.
SAFETY = {
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
}
MEASURING = {
    "SGLANG_ENABLE_METRICS_DEVICE_TIMER": "1",
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",  # /health would run a forward each time
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",  # a crashed server would linger for a minute
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",  # and look at its dead schedulers for seconds
    "SGLANG_PLUGINS": "specroi",
}
_MODULE = "specroi_sglang_plugin"


def server_environment(
    cell: Cell, arguments: ServerArguments, version: str, folder: Path
) -> dict[str, str]:
    """Return the variables of a cell's server, to be put over the process's own.

    Args:
        cell: What is measured.
        arguments: The server's arguments.
        version: A supported version.
        folder: Where the plugin is and writes; `install_plugin` makes it.
    """
    out = SAFETY | MEASURING | {plugin.FOLDER: str(folder), plugin.VERSION: version}
    if algorithm := cast(ServesSglang, cell.drafter).sglang_arguments().get(ALGORITHM):
        out[plugin.DRAFTER] = "ngram" if algorithm == "NGRAM" else "model"
    mode = arguments.mode
    if mode.captures_decode and not mode.captures_verify:
        out[plugin.EAGER_VERIFY] = "1"
    if mode.allreduce == "fused":
        out[plugin.SM120_FUSION] = "1"
    if arguments.engine.load_format == "dummy":
        out[plugin.RANDOM_WEIGHTS] = "1"
    return out | _held(cell)


def install_plugin(folder: Path) -> None:
    """Put the plugin where a server of any interpreter finds it, alone.

    Our own packages have plain names (`conf`, `verify`), which must not shadow a server's modules,
    so the one file is copied with its own metadata.
    """
    metadata = folder / "specroi-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(plugin.__file__, folder / f"{_MODULE}.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: specroi\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(
        f"[sglang.srt.plugins]\nspecroi = {_MODULE}:activate\n"
    )


def _held(cell: Cell) -> dict[str, str]:
    """Return what makes SGLang accept a given length on average, whatever the drafter says."""
    held = cell.sampling.held_accept_length
    if not held or cell.is_baseline:
        return {}
    # Real draft tokens keep the text alive, but only a chain from a model has them.
    chain = cast(ServesSglang, cell.drafter).sglang_arguments().get(BREADTH) == 1
    return {
        "SGLANG_SIMULATE_ACC_LEN": f"{held:g}",
        "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token" if chain else "fixed",
    }
