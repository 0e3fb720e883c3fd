"""What a checkpoint's configuration says, as far as launching a server depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.target.source import PACKAGE, is_hub_id
from pipeline.target.target import Target
from pipeline.target.tokenizer import read_json


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a model's folder.

    Attributes:
        dtype: Type that the weights are stored in; "" if the configuration does not say.
        weight_bytes: Size of its safetensors files; 0 if there are none.
    """

    architecture: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    num_heads: int
    dtype: str
    weight_bytes: int


def model_path(target: Target, cache: Path) -> str:
    """Return what a server is told to load: a folder, or a hub id that it fetches itself.

    Raises:
        ValueError: There is no such folder, or the target has no checkpoint.
    """
    if target.is_random:
        raise ValueError(
            f"target={target.name}: a server needs a folder with config.json and tokenizer.json;"
            " name one in target.source and set engine.load_format=dummy for random weights"
        )
    if is_hub_id(target.source):
        return target.source
    if target.source.startswith(PACKAGE) or Path(target.source).suffix == ".gguf":
        return str(target.folder(cache))
    path = Path(target.source).expanduser()
    if not (path / "config.json").is_file():
        raise ValueError(f"target.source={target.source}: no folder with a config.json is there")
    return str(path.absolute())


def model_facts(path: str, revision: str = "") -> ModelFacts | None:
    """Read a folder's configuration, or the cached one of a hub id; None where there is none yet.

    Raises:
        ValueError: The configuration is damaged or lacks a field.
    """
    folder = _local_folder(path, revision)
    if folder is None:
        return None
    config = read_json(folder / "config.json")
    text = config.get("text_config") or config  # of a model that also sees
    try:
        return ModelFacts(
            architecture=str((config.get("architectures") or [""])[0]),
            hidden_size=int(text["hidden_size"]),
            vocab_size=int(text["vocab_size"]),
            num_layers=int(text["num_hidden_layers"]),
            num_heads=int(text["num_attention_heads"]),
            dtype=str(text.get("dtype") or text.get("torch_dtype") or ""),
            weight_bytes=sum(f.stat().st_size for f in folder.glob("*.safetensors")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{folder / 'config.json'} lacks a sound {error}") from None


def _local_folder(path: str, revision: str) -> Path | None:
    """Return where the configuration is on this machine."""
    if (Path(path) / "config.json").is_file():
        return Path(path)
    if not is_hub_id(path):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(path, "config.json", revision=revision or None)
    return Path(found).parent if isinstance(found, str) else None
