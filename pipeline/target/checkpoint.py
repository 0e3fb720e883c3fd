"""A Llama checkpoint folder: its shape, its tensors, its digest; checked before anything loads."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from pipeline.target.gguf import FORMATS
from pipeline.target.gguf_checkpoint import BLOCKS, MANIFEST
from pipeline.target.shape import tensor_shapes
from pipeline.target.tokenizer import Tokenizer, read_json
from pipeline.target.weight_files import llama_files, opened
from verify.base import TargetShape
from verify.native.packed import Packed


class Checkpoint:
    """A checkpoint whose names, shapes and types have been checked; weights are not loaded yet.

    Attributes:
        folder: The Hugging Face checkpoint folder.
        names: Every tensor that the model needs, by Hugging Face's names.
        digest: Identity of the weights, 64 hex digits: the hash of the file that they were made
            from, else a hash over configuration, headers and samples of every weight file.
    """

    def __init__(self, folder: Path) -> None:
        """Read configuration and headers.

        Raises:
            ValueError: Another architecture, other files than safetensors, or a tensor that is
                missing, unknown, or of another shape or type than the configuration says.
        """
        self.folder = folder
        self._shape, self._files = llama_files(folder)
        self.names = tuple(tensor_shapes(self._shape))
        self.digest = _digest(folder, sorted(set(self._files.values())))

    def shape(self) -> TargetShape:
        """Return the model's shape."""
        return self._shape

    def tensor(self, name: str, device: torch.device | str = "cpu") -> Tensor:
        """Load one tensor in the type it is stored in; on the CPU it is mapped, not copied."""
        with safe_open(self._files[name], "pt", device=str(device)) as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor

    def tensors(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Load every tensor in the type it is stored in; on the CPU mapped, not copied."""
        return {name: self.tensor(name, device) for name in self.names}

    def packed(self) -> dict[str, Packed] | None:
        """Return the matrices' quantised rows as they were published; None if there are none."""
        path = self.folder / BLOCKS
        if not path.is_file():
            return None
        values = {fmt: (count, size) for fmt, count, size in FORMATS.values()}
        packed = {}
        with opened(path) as file:
            for name, fmt in file.metadata().items():
                data = file.get_tensor(name)
                count, size = values[fmt]
                rows, num_bytes = data.shape
                packed[name] = Packed(fmt, data, rows, num_bytes // size * count)
        return packed

    def tokenizer(self) -> Tokenizer:
        """Return the checkpoint's tokenizer."""
        return Tokenizer(self.folder)


def _digest(folder: Path, files: list[Path]) -> str:
    """Return the source's hash from the manifest, else a hash over samples of the weights.

    A whole read would take minutes on the largest models. Each file gives its size, its first
    MiB, which covers most headers, and a MiB from the middle and the end.
    """
    manifest = folder / MANIFEST
    if manifest.is_file():
        if digest := read_json(manifest).get("sha256"):
            return str(digest)
        raise ValueError(f"{manifest} names no sha256; delete its folder in the cache")
    sha = hashlib.sha256((folder / "config.json").read_bytes())
    for path in files:
        size = path.stat().st_size
        sha.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for start in (0, size // 2, max(size - 2**20, 0)):
                file.seek(start)
                sha.update(file.read(2**20))
    return sha.hexdigest()
