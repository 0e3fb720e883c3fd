"""A Llama checkpoint folder: its shape, its tensors, its digest; checked before anything loads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pipeline.target.gguf import FORMATS
from pipeline.target.gguf_checkpoint import BLOCKS, MANIFEST
from pipeline.target.shape import read_shape, tensor_shapes
from pipeline.target.tokenizer import Tokenizer, read_json
from verify.base import TargetShape
from verify.native.packed import Packed

_DTYPES = ("F32", "F16", "BF16")


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
        self._shape = read_shape(folder)
        self._files = _tensor_files(folder)
        self.names = tuple(tensor_shapes(self._shape))
        self._check_names()
        for file in sorted(set(self._files.values())):
            self._check_headers(file)
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
        with _opened(path) as file:
            for name, fmt in file.metadata().items():
                data = file.get_tensor(name)
                count, size = values[fmt]
                rows, num_bytes = data.shape
                packed[name] = Packed(fmt, data, rows, num_bytes // size * count)
        return packed

    def tokenizer(self) -> Tokenizer:
        """Return the checkpoint's tokenizer."""
        return Tokenizer(self.folder)

    def _check_names(self) -> None:
        """Refuse missing and unknown tensors."""
        unused: tuple[str, ...] = ("rotary_emb.inv_freq",)  # a constant that older files carry
        if self._shape.tie_word_embeddings:
            unused += ("lm_head.weight",)
        found = {name for name in self._files if not name.endswith(unused)}
        if missing := [name for name in self.names if name not in found]:
            raise ValueError(
                f"{self.folder}: tensor {missing[0]} is missing ({len(missing)} in all)"
            )
        if unknown := sorted(found - set(self.names)):
            raise ValueError(
                f"{self.folder}: tensor {unknown[0]} is not part of a plain Llama model"
                f" ({len(unknown)} such in all)"
            )

    def _check_headers(self, path: Path) -> None:
        """Refuse a tensor whose shape or type is not the configuration's."""
        expected = tensor_shapes(self._shape)
        with _opened(path) as file:
            inside = set(file.keys())
            for name in expected:
                if self._files[name] != path:
                    continue
                if name not in inside:
                    raise ValueError(f"{path}: the index promises {name}, which is not in the file")
                piece = file.get_slice(name)
                if tuple(piece.get_shape()) != expected[name]:
                    raise ValueError(
                        f"{path}: {name} is {tuple(piece.get_shape())}, but config.json asks for"
                        f" {expected[name]}"
                    )
                if piece.get_dtype() not in _DTYPES:
                    raise ValueError(
                        f"{path}: {name} is {piece.get_dtype()}; only {', '.join(_DTYPES)} are read"
                    )


def _opened(path: Path) -> safe_open:
    """Open a safetensors file; a damaged one gives one line."""
    try:
        return safe_open(path, "pt")
    except SafetensorError as error:
        raise ValueError(
            f"{path} is damaged ({error}); copy it again, or delete its folder in the cache"
        ) from None


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Return the file that holds each tensor: of a single file, or of an index of shards."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        with _opened(single) as file:
            return dict.fromkeys(file.keys(), single)
    if not index.is_file():
        others = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
        found = f"only {others[0]}, which can run code when it is read" if others else "no weights"
        raise ValueError(f"{folder} has {found}; give a folder with safetensors files")
    parts = read_json(index).get("weight_map")
    if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
        raise ValueError(f"{index}: weight_map must name a file for each tensor")
    if away := [part for part in parts.values() if Path(part).name != part]:
        raise ValueError(f"{index}: {away[0]} is outside of the checkpoint's folder")
    files = {name: folder / part for name, part in parts.items()}
    if lost := sorted({path.name for path in files.values() if not path.is_file()}):
        raise ValueError(f"{folder}: {lost[0]} is missing ({len(lost)} of its index's files)")
    return files


def _digest(folder: Path, files: list[Path]) -> str:
    """Return the source's hash from the manifest, else a hash over samples of the weights.

    A whole read would take minutes on the largest models. Each file gives its size, its first
    MiB, which covers most headers, and a MiB from the middle and the end.
    """
    manifest = folder / MANIFEST
    if manifest.is_file():
        return str(json.loads(manifest.read_text())["sha256"])
    sha = hashlib.sha256((folder / "config.json").read_bytes())
    for path in files:
        size = path.stat().st_size
        sha.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for start in (0, size // 2, max(size - 2**20, 0)):
                file.seek(start)
                sha.update(file.read(2**20))
    return sha.hexdigest()
