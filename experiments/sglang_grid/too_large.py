"""A model that no GPU holds: its configuration says so, and so does the size of its weights' file.

The file is sparse: it takes no space on the disk, and nothing can be read from it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from pipeline.engine.sglang.model import model_path
from pipeline.machine.cache import cache_root
from pipeline.target.target import Target

WEIGHTS, FILE_BYTES = "model.safetensors", 8 * 2**40
# 6 GiB a layer, so that memory is full after a few dozen of them, within seconds.
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 131072,
    "num_hidden_layers": 1024,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
_KEPT = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
_TOKENIZER = ("tokenizer*", "special_tokens_map.json", "vocab.*", "merges.txt", "chat_template*")


def write_too_large(small: Target, folder: Path) -> Path:
    """Write the folder of a model too large for any machine, with a small target's tokenizer."""
    source = Path(model_path(small, cache_root()))
    folder.mkdir(parents=True, exist_ok=True)
    for path in (path for pattern in _TOKENIZER for path in source.glob(pattern)):
        shutil.copyfile(path, folder / path.name)
    config = json.loads((source / "config.json").read_text())
    kept = {key: config[key] for key in _KEPT if key in config}
    (folder / "config.json").write_text(json.dumps(SHAPE | kept, indent=1))
    with (folder / WEIGHTS).open("wb") as file:
        file.truncate(FILE_BYTES)
    return folder


def refusal(build: Callable[[], object]) -> str:
    """Return why a cell cannot be built, "" if it can."""
    try:
        build()
    except ValueError as error:
        return str(error)
    return ""
