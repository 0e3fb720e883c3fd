"""Convert a Llama GGUF file, its tokenizer included, into a Hugging Face checkpoint folder, once.

The folder holds float32 tensors, the matrices' blocks as they were published, and a tokenizer built
from the file's vocabulary and merges.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from pipeline.machine.cache import built_once
from pipeline.target.gguf import Gguf, GgufTensor, dequantise, read_gguf
from pipeline.target.shape import shape_of, tensor_shapes
from pipeline.target.tokenizer import is_librarys, read_json

MANIFEST = "specroi.json"
LAYOUT = 2  # of a checkpoint's folder; one of another layout is made again
BLOCKS = "packed.blocks"  # safetensors within; a server would load every *.safetensors as weights
_BLOCK_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_CONTROL = 3  # GGUF's type of a special token
_ROLES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def convert_gguf(path: Path, cache: Path) -> Path:
    """Return the checkpoint folder of a GGUF file, made on first use.

    The folder's name holds the file's SHA-256. A file whose size and time are those of a folder's
    manifest is taken as that one without reading it again.

    Args:
        path: The GGUF file.
        cache: The cache folder, as `cache_root` returns it.

    Raises:
        ValueError: The file is damaged or not a Llama model, or the cache cannot take it.
    """
    stat = path.stat()
    source: dict[str, Any] = {
        "layout": LAYOUT,
        "bytes": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
    }
    for manifest in cache.glob(f"targets/{path.stem}-*/{MANIFEST}"):
        with contextlib.suppress(ValueError):  # a damaged one is told when its folder is opened
            if source.items() <= read_json(manifest).items():
                return manifest.parent
    with path.open("rb") as file:
        source["sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    folder = cache / "targets" / f"{path.stem}-{source['sha256'][:12]}-{LAYOUT}"
    if folder.is_dir():
        return folder
    gguf = read_gguf(path)
    _check(gguf)
    values = sum(int(np.prod(tensor.shape)) for tensor in gguf.tensors.values())
    needed = 4 * values + stat.st_size + 8_000_000  # 8 MB for tokenizer.json
    return built_once(folder, needed, lambda partial: _write(gguf, source, partial))


def _write(gguf: Gguf, source: dict[str, Any], folder: Path) -> None:
    """Write the checkpoint's files."""
    config = _config(gguf)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {_hf_name(gguf, n): _rotate_half(n, t, heads) for n, t in gguf.tensors.items()}
    _write_values(folder / "model.safetensors", tensors)
    _write_blocks(folder / BLOCKS, tensors)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_tokenizer(gguf, folder)
    (folder / MANIFEST).write_text(json.dumps({"source": gguf.path.name, **source}))


def _check(gguf: Gguf) -> None:
    """Refuse a file that is no whole model, before anything is written.

    Raises:
        ValueError: A vocabulary alone, one part of several, or a tensor that is missing, unknown or
            of another shape than the metadata say.
    """
    if (parts := gguf.metadata.get("split.count", 1)) not in (0, 1):
        told = re.search(r"-(\d+)-of-\d+$", gguf.path.stem)
        part = int(told[1]) if told else int(gguf.metadata.get("split.no", 0)) + 1
        lost = next((name for name in _TOP_NAMES if name not in gguf.tensors), "others")
        raise ValueError(
            f"{gguf.path}: part {part} of {parts} of a split model (tensor {lost} is missing);"
            " merge the parts with `llama-gguf-split --merge FIRST_PART OUT.gguf` and name that"
        )
    if (architecture := gguf.metadata.get("general.architecture")) != "llama":
        raise ValueError(f"{gguf.path}: architecture {architecture!r}; only llama can be read")
    if scaling := [key for key in gguf.metadata if key.startswith("llama.rope.scaling")]:
        raise ValueError(f"{gguf.path}: {scaling[0]} is set; scaled rope is not supported")
    if "token_embd.weight" not in gguf.tensors:
        why = "holds a part of a model" if gguf.tensors else "holds a vocabulary alone, no tensors"
        raise ValueError(
            f"{gguf.path}: tensor token_embd.weight is missing: the file {why}; name the file of"
            " the whole model"
        )
    expected = tensor_shapes(shape_of(_config(gguf), gguf.path))
    names = {_hf_name(gguf, name): name for name in gguf.tensors}
    if missing := [name for name in expected if name not in names]:
        raise ValueError(
            f"{gguf.path}: tensor {_gguf_name(missing[0])} is missing ({len(missing)} in all);"
            " install or copy the file again"
        )
    for name, wanted in expected.items():
        if (found := gguf.tensors[names[name]].shape) != wanted:
            raise ValueError(
                f"{gguf.path}: {names[name]} is {found}, but the metadata ask for {wanted}"
            )


def _gguf_name(name: str) -> str:
    """Return GGUF's name of a tensor."""
    tops = {theirs: ours for ours, theirs in _TOP_NAMES.items()}
    blocks = {theirs: ours for ours, theirs in _BLOCK_NAMES.items()}
    if name in tops:
        return tops[name]
    layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{blocks[part]}.weight"


def _config(gguf: Gguf) -> dict[str, Any]:
    """Return the model's configuration under Hugging Face's names."""
    get = gguf.required
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": get("llama.block_count"),
        "hidden_size": get("llama.embedding_length"),
        "intermediate_size": get("llama.feed_forward_length"),
        "num_attention_heads": get("llama.attention.head_count"),
        "num_key_value_heads": get("llama.attention.head_count_kv"),
        "head_dim": get("llama.rope.dimension_count"),
        "vocab_size": gguf.tensors["token_embd.weight"].shape[0],
        "rope_theta": get("llama.rope.freq_base"),
        "rms_norm_eps": get("llama.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": get("llama.context_length"),
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "bos_token_id": get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": get("tokenizer.ggml.eos_token_id"),
        "dtype": "float32",
    }


def _hf_name(gguf: Gguf, name: str) -> str:
    """Return Hugging Face's name of a GGUF tensor."""
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if match is None or match[2] not in _BLOCK_NAMES:
        raise ValueError(f"{gguf.path}: tensor {name} is not part of a plain Llama model")
    return f"model.layers.{match[1]}.{_BLOCK_NAMES[match[2]]}.weight"


def _rotate_half(name: str, tensor: GgufTensor, heads: dict[str, int]) -> GgufTensor:
    """Undo the order in which llama.cpp stores query and key rows.

    It interleaves the halves of every head, for its own rope; ours and Hugging Face's rotates
    halves. Rows move whole, so stored blocks move as well as values do.
    """
    num_heads = next((count for part, count in heads.items() if f".{part}." in name), None)
    if num_heads is None:
        return tensor
    by_head = tensor.data.reshape(num_heads, len(tensor.data) // num_heads // 2, 2, -1)
    return tensor._replace(data=by_head.swapaxes(1, 2).reshape(tensor.data.shape))


def _write_values(path: Path, tensors: dict[str, GgufTensor]) -> None:
    """Write every tensor as float32."""
    entries = {name: ("F32", tensor.shape) for name, tensor in tensors.items()}
    _write_safetensors(
        path,
        entries,
        {"format": "pt"},
        lambda name: dequantise(tensors[name].fmt, tensors[name].data),
    )


def _write_blocks(path: Path, tensors: dict[str, GgufTensor]) -> None:
    """Write the matrices' stored blocks; the header's metadata names the format of each."""
    matrices = {name: tensor for name, tensor in tensors.items() if len(tensor.shape) == 2}
    entries = {name: ("U8", tensor.data.shape) for name, tensor in matrices.items()}
    formats = {name: tensor.fmt for name, tensor in matrices.items()}
    _write_safetensors(path, entries, formats, lambda name: matrices[name].data)


def _write_safetensors(
    path: Path,
    entries: dict[str, tuple[str, tuple[int, ...]]],
    metadata: dict[str, str],
    array: Callable[[str], npt.NDArray[Any]],
) -> None:
    """Write a safetensors file tensor by tensor, so that one tensor is in memory, not all.

    Args:
        path: The new file.
        entries: Type and shape of each tensor, in the order to write.
        metadata: Goes into the header.
        array: Returns a tensor's values by its name.
    """
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape) in entries.items():
        start, end = end, end + int(np.prod(shape)) * (4 if dtype == "F32" else 1)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in entries:
            file.write(np.ascontiguousarray(array(name)).data)


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
    try:
        tokenizer = _byte_level_bpe(gguf, tokens)
        config = _special_tokens(gguf, tokens)
    except BaseException as error:
        if not is_librarys(error):
            raise
        raise ValueError(
            f"{gguf.path}: the tokenizer's metadata are damaged ({error}); copy the file again"
        ) from None
    tokenizer.save(str(folder / "tokenizer.json"))
    if "tokenizer.chat_template" in gguf.metadata:
        config["chat_template"] = gguf.metadata["tokenizer.chat_template"]
    config["model_max_length"] = gguf.required("llama.context_length")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def _special_tokens(gguf: Gguf, tokens: list[str]) -> dict[str, Any]:
    """Return the special tokens' texts by their roles."""
    return {
        role: tokens[gguf.metadata[f"tokenizer.ggml.{key}"]]
        for role, key in _ROLES.items()
        if f"tokenizer.ggml.{key}" in gguf.metadata
    }


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
