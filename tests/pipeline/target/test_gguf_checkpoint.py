"""GGUF files that hold no whole model: refused by both commands, and nothing stays in the cache."""

import gguf
import numpy as np
import pytest

from pipeline.config.compose import compose_each
from pipeline.sweep.launch import launch
from pipeline.target.__main__ import main
from pipeline.target.gguf import read_gguf
from pipeline.target.gguf_checkpoint import convert_gguf, write_tokenizer
from pipeline.target.target import Target

NORM = {"blk.0.attn_norm.weight": np.ones(576, np.float32)}
EMBEDDING = np.ones((64, 576), np.float16)


@pytest.fixture(scope="module")
def settings(gguf_file):
    """The metadata of the packaged file, with its types."""
    fields = gguf.GGUFReader(gguf_file).fields.values()
    known = [f for f in fields if not f.name.startswith(("GGUF.", "general.architecture"))]
    return [(field.name, field.contents(), field.types) for field in known]


@pytest.fixture
def written(settings, tmp_path):
    """Write a file of the packaged one's metadata, changed, and some tensors."""

    def write(name, tensors=None, without=(), **extra):
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, "llama")
        for key, value, types in settings:
            if key in without:
                continue
            if types[0] == gguf.GGUFValueType.ARRAY:
                writer.add_array(key, value)
            else:
                writer.add_key_value(key, value, types[0])
        for key, value in extra.items():
            writer.add_uint16(key.replace("__", "."), value)
        for key, tensor in (tensors or {}).items():
            writer.add_tensor(key, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def test_a_vocabulary_or_a_part_is_refused_by_both_commands(written, tmp_path, capsys):
    cache = f"cache={tmp_path / 'cache'}"
    for path, message in (
        (written("vocab.gguf"), r"token_embd.weight is missing: the file holds a vocabulary alone"),
        (
            written("model-00002-of-00003.gguf", NORM, split__count=3),
            r"part 2 of 3 of a split model (tensor token_embd.weight is missing); merge",
        ),
    ):
        with pytest.raises(SystemExit, match="error: ") as stopped:
            main(["prepare", f"target.source={path}", cache])
        assert message in str(stopped.value)
        asked = [f"target.source={path}", "target.name=x", cache, f"runs={tmp_path / 'runs'}"]
        assert launch(compose_each([asked]), [asked]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("cache/targets/*"))
    assert not (tmp_path / "runs" / "sweeps").exists()


@pytest.mark.parametrize(
    ("name", "tensors", "extra", "message"),
    [
        ("p.gguf", {}, {"split__count": 4, "split__no": 2}, "part 3 of 4 of a split model"),
        ("first-00001-of-00002.gguf", NORM, {"split__count": 2}, "part 1 of 2 of a split model"),
        ("half.gguf", NORM, {}, "token_embd.weight is missing: the file holds a part of a model"),
        (
            "cut.gguf",
            {"token_embd.weight": EMBEDDING, **NORM},
            {},
            r"tensor blk.0.attn_q.weight is missing \(27\d in all\)",
        ),
        (
            "other.gguf",
            {"token_embd.weight": EMBEDDING, "rope_freqs.weight": np.ones(32, np.float32)},
            {},
            "tensor rope_freqs.weight is not part of a plain Llama model",
        ),
    ],
)
def test_what_is_missing_is_named(written, tmp_path, name, tensors, extra, message):
    path = written(name, tensors, **extra)
    with pytest.raises(ValueError, match=message):
        Target("t", str(path)).folder(tmp_path / "cache")
    assert not list(tmp_path.glob("cache/targets/*"))


def test_a_folder_of_gguf_files_is_told_to_name_one(written, tmp_path):
    path = written("vocab.gguf")
    with pytest.raises(ValueError, match=rf"name the file itself, such as {path}"):
        Target("t", str(tmp_path)).tokenizer(tmp_path / "cache")


def test_a_file_of_another_architecture_is_told_so_whatever_it_lacks(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "mmproj.gguf", "clip")
    writer.add_tensor("v.patch_embd.weight", EMBEDDING)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="architecture 'clip'; only llama can be read"):
        Target("t", str(tmp_path / "mmproj.gguf")).folder(tmp_path / "cache")


def test_metadata_that_is_missing_is_named(written, tmp_path):
    path = written(
        "m.gguf",
        {"token_embd.weight": EMBEDDING},
        without=("llama.embedding_length",),
    )
    with pytest.raises(ValueError, match=r"m.gguf: metadata llama.embedding_length is missing"):
        convert_gguf(path, tmp_path / "cache")


def test_a_tensor_of_another_shape_than_the_metadata_say_is_refused_before_it_is_written(
    gguf_file, tmp_path, monkeypatch
):
    whole = read_gguf(gguf_file)
    name = "blk.3.ffn_norm.weight"
    tensor = whole.tensors[name]
    cut = tensor._replace(shape=(512,), data=tensor.data[:, : 512 * 4])
    changed = type(whole)(whole.path, whole.metadata, whole.tensors | {name: cut})
    monkeypatch.setattr("pipeline.target.gguf_checkpoint.read_gguf", lambda _: changed)
    with pytest.raises(ValueError, match=rf"{name} is \(512,\), but the metadata ask for \(576,\)"):
        convert_gguf(gguf_file, tmp_path / "cache")
    assert not list(tmp_path.glob("cache/targets/*"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokenizer.ggml.bos_token_id", 10**6),
        ("tokenizer.ggml.merges", ["no-such pair"]),
        ("tokenizer.ggml.tokens", 7),
        ("tokenizer.ggml.token_type", [1]),
    ],
)
def test_damaged_metadata_of_a_tokenizer_are_one_line(gguf_file, tmp_path, key, value):
    whole = read_gguf(gguf_file)
    damaged = type(whole)(whole.path, whole.metadata | {key: value}, whole.tensors)
    with pytest.raises(ValueError, match=r"gguf: the tokenizer's metadata are damaged \(") as error:
        write_tokenizer(damaged, tmp_path)
    assert "\n" not in str(error.value)


def test_a_fault_while_a_checkpoint_is_written_leaves_nothing_of_it(
    gguf_file, tmp_path, monkeypatch
):
    def fail(*_):
        raise ValueError("tokenizer nothing")

    monkeypatch.setattr("pipeline.target.gguf_checkpoint.write_tokenizer", fail)
    with pytest.raises(ValueError, match="tokenizer nothing"):
        convert_gguf(gguf_file, tmp_path / "cache")
    assert not list(tmp_path.glob("cache/targets/*.partial"))
    assert not list(tmp_path.glob("cache/targets/.*.partial"))
