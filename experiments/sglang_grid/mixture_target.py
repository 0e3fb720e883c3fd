"""Make a target of a real shape without its weights, and a random head for it.

    python -m experiments.sglang_grid.mixture_target /tmp/moe
    python -m pipeline --config-dir /tmp/moe/conf experiment=sglang_grid target=qwen3_moe \
        drafter=none,ngram,scratch_here,published_here engine.load_format=dummy \
        sampling.held_accept_length=2.0

`... /tmp/moe head` writes the head alone, which is large: on a box that has the rest already.

Shape: Qwen3-30B-A3B with 16 of its 128 experts, whose layers fuse both all-reduces; prompts are
tokenised with the embedded target's tokenizer. Good for what a step costs, never for what it
accepts: give sampling.held_accept_length.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from drafters.eagle3.checkpoint import Head, save_head
from drafters.eagle3.shape import HeadShape, tensor_shapes
from drafters.vocab.maps import VocabMap

CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 16,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def main(folder: Path) -> None:
    """Write `folder/target`, `folder/head`, and the yamls that name them in `folder/conf`."""
    write_tokenizer(folder / "target")
    write_config(folder / "target", CONFIG)
    save_head(random_head(), folder / "head")
    write_yamls(folder)
    print(f"--config-dir {folder / 'conf'} target=qwen3_moe drafter=scratch_here,published_here")


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write a checkpoint's configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def write_tokenizer(folder: Path) -> None:
    """Copy the embedded target's tokenizer."""
    from hydra.utils import instantiate

    from pipeline.config.compose import compose_each
    from pipeline.machine.cache import cache_root

    folder.mkdir(parents=True, exist_ok=True)
    (config,) = compose_each([[]])
    embedded = instantiate(config.target).folder(cache_root())
    for path in embedded.glob("*token*"):
        shutil.copy(path, folder)


def write_yamls(folder: Path) -> None:
    """Write a target's and two drafters' yaml; one random head plays both."""
    target = {"_target_": "pipeline.target.target.Target", "name": "qwen3_moe", "dtype": "bfloat16"}
    files = {"target/qwen3_moe": target | {"source": str(folder / "target")}}
    for file, name in (("scratch_here", "eagle3_scratch"), ("published_here", "aq_medai_k2")):
        heads = {"qwen3_moe": str(folder / "head")}
        drafter = {"_target_": "drafters.eagle3.drafter.Eagle3", "name": name, "heads": heads}
        files[f"drafter/{file}"] = drafter | {"target": "${target.name}", "num_draft_tokens": 3}
    for file, value in files.items():
        path = folder / "conf" / f"{file}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=1) + "\n")  # JSON is YAML


def random_head() -> Head:
    """Draw a head of the published kind: 32,000 draft tokens."""
    shape = HeadShape(
        hidden_size=2048,
        intermediate_size=6144,
        num_heads=32,
        num_kv_heads=4,
        head_dim=128,
        vocab_size=151936,
        draft_vocab_size=32000,
        rope_theta=1e6,
        rms_norm_eps=1e-6,
        max_positions=40960,
    )
    tensors = {
        name: torch.ones(size) if len(size) == 1 else torch.randn(size) * size[1] ** -0.5
        for name, size in tensor_shapes(shape).items()
    }
    return Head(shape, tensors, VocabMap(torch.arange(shape.draft_vocab_size), shape.vocab_size))


if __name__ == "__main__":
    if sys.argv[2:] == ["head"]:
        save_head(random_head(), Path(sys.argv[1]) / "head")
    else:
        main(Path(sys.argv[1]))
