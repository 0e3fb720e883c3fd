"""Write the tokenizer that a GGUF file holds as `tokenizer.json`, chat template beside it."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from pipeline.target.gguf import Gguf

_CONTROL = 3  # GGUF's type of a special token
_ROLES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def write_tokenizer(gguf: Gguf, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json`.

    Raises:
        ValueError: The file's tokenizer is of a kind that we do not know.
    """
    kind = gguf.required("tokenizer.ggml.model"), gguf.required("tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        raise ValueError(
            f"{gguf.path}: tokenizer {kind[0]}/{kind[1]}; only gpt2/smollm can be read from GGUF,"
            " so point target.source at the model's Hugging Face folder instead"
        )
    tokens = gguf.required("tokenizer.ggml.tokens")
    _byte_level_bpe(gguf, tokens).save(str(folder / "tokenizer.json"))
    config = {
        role: tokens[gguf.metadata[f"tokenizer.ggml.{key}"]]
        for role, key in _ROLES.items()
        if f"tokenizer.ggml.{key}" in gguf.metadata
    }
    if "tokenizer.chat_template" in gguf.metadata:
        config["chat_template"] = gguf.metadata["tokenizer.chat_template"]
    config["model_max_length"] = gguf.required("llama.context_length")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def _byte_level_bpe(gguf: Gguf, tokens: list[str]) -> Tokenizer:
    """Build SmolLM's tokenizer: digits one by one, then byte-level BPE."""
    merges = [tuple(merge.split(" ")) for merge in gguf.required("tokenizer.ggml.merges")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = gguf.required("tokenizer.ggml.token_type")
    specials = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in specials])
    return tokenizer
