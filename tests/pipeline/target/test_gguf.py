import gguf
import numpy as np
import pytest

from pipeline.target.gguf import dequantise, read_gguf


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A file with one tensor of each format that the writer can make."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    values = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_array("words", ["one", "zwei", "三"])
    for kind in ("F32", "F16", "Q4_1", "Q8_0", "BF16"):
        number = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(kind, gguf.quantize(values, number), raw_dtype=number)
    writer.add_tensor("vector", values[0])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_every_format_unpacks_bit_for_bit_as_ggml_does(small):
    ours = read_gguf(small)
    for tensor in gguf.GGUFReader(small).tensors:
        mine = ours.tensors[tensor.name]
        reference = gguf.dequantize(tensor.data, tensor.tensor_type)
        assert mine.shape == tuple(tensor.shape.tolist()[::-1])
        assert np.array_equal(
            dequantise(mine.fmt, mine.data).reshape(mine.shape).view(np.uint32),
            reference.view(np.uint32),
        )


def test_metadata_keeps_its_types(small):
    metadata = read_gguf(small).metadata
    assert metadata["words"] == ["one", "zwei", "三"]
    assert metadata["llama.block_count"] == 3


def test_the_embedded_targets_blocks_unpack_as_ggml_does(gguf_file):
    tensors = read_gguf(gguf_file).tensors
    for name in ("token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight"):
        fmt, _, data = tensors[name]
        expected = gguf.dequantize(data, gguf.GGMLQuantizationType[fmt.upper()])
        assert np.array_equal(dequantise(fmt, data).view(np.uint32), expected.view(np.uint32))


def test_a_file_cut_short_names_the_tensor_that_it_ends_in(small, tmp_path):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(small.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"cut.gguf: cut short inside (BF16|vector); install"):
        read_gguf(cut)


@pytest.mark.parametrize("size", [0, 3, 40, 200])
def test_a_file_cut_inside_its_header_is_refused_in_one_line(small, tmp_path, size):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(small.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"cut.gguf: damaged GGUF header \(file ends at byte"):
        read_gguf(cut)


def test_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(ValueError, match="not a GGUF file"):
        read_gguf(tmp_path / "x.gguf")


def test_a_format_that_we_cannot_unpack_is_named(tmp_path):
    path = tmp_path / "q6.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    kind = gguf.GGMLQuantizationType.Q6_K
    writer.add_tensor("t", np.zeros((1, 210), np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ValueError, match="t has GGML type 14; only f32, f16, q4_1, q8_0, bf16"):
        read_gguf(path)
