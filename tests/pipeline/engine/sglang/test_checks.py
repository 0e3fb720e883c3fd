"""What cannot run is refused before a server is launched, with the setting and the fix."""

import json
from dataclasses import replace

import pytest

from drafters.base import Draft
from drafters.eagle3.checkpoint import save_head
from drafters.eagle3.drafter import Eagle3
from drafters.ngram import Ngram
from drafters.standalone import Standalone
from pipeline.cell.cell import Parallelism, Sampling
from pipeline.engine.sglang.versions import names
from pipeline.target.target import Target
from tests.drafters.eagle3.heads import SHAPE, random_head
from tests.pipeline.engine.sglang.conftest import CONFIG
from verify.fused_allreduce import FusedAllreduce
from verify.graph_captured import GraphCaptured


def refused(cell, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cell.engine.check(cell)


@pytest.fixture
def gpus(driver_says):
    """Puts a driver's tool on the path that tells of GPUs with a few MiB."""

    def put(count: int, total_mib: int) -> None:
        rows = "".join(f"{i}, GPU-{i}, H200, 10, {total_mib}\\n" for i in range(count))
        driver_says(f"printf '{rows}'")

    return put


def test_a_sound_cell_is_let_through(cell, ngram_cell, gpus):
    gpus(2, 1000)
    for each in (cell, ngram_cell, replace(cell, parallelism=Parallelism(tp=2))):
        each.engine.check(each)


def test_a_model_path_that_does_not_exist_is_refused(cell):
    refused(replace(cell, target=Target("t", "/no/such")), "no folder with a config.json is there")


def test_a_random_target_is_told_how_a_server_gets_random_weights(cell, folder):
    shape = dict.fromkeys(
        ["num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads"], 1
    )
    from verify.base import TargetShape

    shape = TargetShape(
        **shape,
        head_dim=1,
        vocab_size=1,
        rope_theta=1.0,
        rms_norm_eps=1.0,
        max_positions=1,
        tie_word_embeddings=True,
    )
    refused(replace(cell, target=Target("r", "random", shape=shape)), r"engine\.load_format=dummy")


def test_too_few_gpus_are_refused(cell, gpus):
    gpus(1, 1000)
    refused(replace(cell, parallelism=Parallelism(tp=2)), r"parallelism\.tp=2: this machine has 1")


def test_memory_that_is_too_small_says_what_is_missing(cell, folder, gpus):
    gpus(1, 10)
    with (folder / "model.safetensors").open("wb") as file:
        file.truncate(2**30)
    refused(cell, r"must hold 1\.0 GiB .* 1\.0 GiB are missing")


def test_an_unknown_version_is_refused_with_the_supported_ones(engine):
    with pytest.raises(ValueError, match=r"engine\.version=0\.6\.0: SGLang 0\.5\.17 and 0\.5\.23"):
        replace(engine, version="0.6.0")


def test_an_installed_unknown_version_is_refused_with_the_names_that_it_lacks(
    cell, monkeypatch, started
):
    monkeypatch.setenv("FAKE_VERSION", "0.6.1")
    monkeypatch.setenv("FAKE_LACKS", "cuda-graph-bs-decode")
    with pytest.raises(ValueError, match=r"SGLang 0\.6\.1 .* lacks --cuda-graph-bs-decode"):
        started(cell)


def test_an_installed_unknown_version_that_cannot_be_imported_is_refused(
    cell, monkeypatch, started
):
    monkeypatch.setenv("FAKE_VERSION", "0.6.1")
    monkeypatch.setenv("FAKE_FLAGS", "[]")
    with pytest.raises(ValueError, match=r"SGLang 0\.6\.1 .* cannot be imported"):
        started(cell)


def test_an_interpreter_without_sglang_starts_nothing(cell, monkeypatch, started):
    monkeypatch.setenv("FAKE_VERSION", "")
    for version in ("auto", "0.5.23"):
        with pytest.raises(ValueError, match=r"SGLang is not installed here; .* engine\.python"):
            started(replace(cell, engine=replace(cell.engine, version=version)))


@pytest.mark.parametrize("version", ["auto", "0.5.23"])
@pytest.mark.parametrize(
    ("lacks", "extra", "setting"),
    [
        ("page-size", (), r"--page-size; see engine\.page_size, and that engine\.version"),
        ("load-format", (), r"--load-format; see engine\.load_format"),
        ("", ("--watchdog-timeout", "3"), r"--watchdog-timeout; see engine\.extra_args"),
    ],
)
def test_arguments_that_the_servers_own_parser_refuses_end_the_start_with_the_setting(
    cell, monkeypatch, started, version, lacks, extra, setting
):
    monkeypatch.setenv("FAKE_LACKS", lacks)
    engine = replace(cell.engine, version=version, extra_args=extra)
    with pytest.raises(ValueError, match=f"SGLang refuses its arguments: .*{setting}"):
        started(replace(cell, engine=engine))


def test_a_supported_versions_arguments_are_read_once_by_the_server_itself(cell, started, tmp_path):
    started(cell, "notes_its_parser")
    assert not (tmp_path / "count").exists(), "a parser of its own would be a start more"


def test_an_interpreter_that_is_not_there_is_refused(cell):
    other = replace(cell, engine=replace(cell.engine, python="/no/python", version="auto"))
    refused(other, r"engine\.python=/no/python: there is no such interpreter")


def test_a_drafter_of_another_vocabulary_is_refused(cell, tmp_path):
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "config.json").write_text(json.dumps(CONFIG | {"vocab_size": 99}))
    refused(replace(cell, drafter=Standalone(str(draft))), "vocab_size=99, but the target has 128")


def test_a_drafter_that_is_nowhere_is_refused(cell):
    refused(replace(cell, drafter=Standalone("/no/such/model")), "is no folder and no hub id")


def test_a_drafter_or_backend_without_server_arguments_is_refused(cell):
    class Other:
        name, num_draft_tokens = "other", 2

        def propose(self) -> Draft:
            raise NotImplementedError

    refused(replace(cell, drafter=Other()), "drafter=other cannot run on engine=sglang")
    refused(replace(cell, verify=Other()), "verify=other cannot run on engine=sglang")


@pytest.mark.parametrize("verify", [FusedAllreduce(), GraphCaptured(allreduce="nccl")])
def test_an_all_reduce_on_one_rank_is_refused(cell, verify):
    refused(replace(cell, verify=verify), r"need several ranks; set parallelism\.tp=2")


@pytest.mark.parametrize("way", ["gloo", "shared_memory"])
def test_a_sum_that_only_cpus_have_is_refused(cell, way):
    verify, two = GraphCaptured(allreduce=way), Parallelism(tp=2)
    refused(replace(cell, verify=verify, parallelism=two), f"verify.allreduce={way}: .* on CPUs")


def test_fusion_on_a_model_whose_layers_do_not_fuse_is_refused(cell, folder):
    (folder / "config.json").write_text(
        json.dumps(CONFIG | {"architectures": ["LlamaForCausalLM"]})
    )
    fused = replace(cell, verify=FusedAllreduce(), parallelism=Parallelism(tp=2))
    refused(fused, r"LlamaForCausalLM do not fuse in SGLang 0\.5\.17")
    newer = replace(fused, engine=replace(cell.engine, version="0.5.23"))
    newer.engine.check(newer)
    assert names("0.5.23").verify_span == "VERIFY"


def test_a_step_too_large_to_fuse_is_refused(cell, ngram_cell):
    for each, batch in ((cell, 2048), (ngram_cell, 512)):
        fused = replace(each, verify=FusedAllreduce(), parallelism=Parallelism(tp=2, batch=batch))
        fused.engine.check(fused)
        more = replace(fused, parallelism=Parallelism(tp=2, batch=batch + 1))
        refused(more, r"SGLang fuses up to 2048; lower parallelism\.batch")


def test_ranks_that_heads_do_not_divide_among_are_refused(cell):
    refused(replace(cell, parallelism=Parallelism(tp=3)), "4 heads do not divide by it")


def test_a_tree_on_paged_attention_is_refused(cell):
    paged = replace(cell.engine, page_size=16, attention="triton")
    tree = Ngram(name="t", num_draft_tokens=7, breadth=3)
    refused(replace(cell, engine=paged, drafter=tree), r"needs engine\.page_size=1")


def test_a_held_accept_length_beyond_the_width_is_refused(ngram_cell):
    held = replace(ngram_cell, sampling=Sampling(8, held_accept_length=4.5))
    refused(held, "a step of drafter=ngram commits 1 to 4 tokens")


def test_a_damaged_configuration_is_named(cell, folder):
    (folder / "config.json").write_text("{")
    refused(cell, r"config\.json is not JSON")
    (folder / "config.json").write_text(json.dumps({"hidden_size": 3}))
    refused(cell, r"config\.json lacks a sound 'vocab_size'")


@pytest.fixture
def head_cell(cell, tmp_path):
    """A cell with a head of the target, its configuration changed."""
    shape = replace(SHAPE, hidden_size=64, vocab_size=128)

    def make(**changed):
        folder = tmp_path / "head"
        save_head(random_head(shape=shape, capture_ids=(1, 22, 44)), folder)
        config = json.loads((folder / "config.json").read_text()) | changed
        (folder / "config.json").write_text(json.dumps(config))
        return replace(cell, drafter=Eagle3(name="e", target="t", heads={"t": str(folder)}))

    return make


IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({IDS: [2, 22, 44]}, rf"{IDS}=\[2, 22, 44\] and eagle_config\.{IDS}=\[1, 22, 44\] contra"),
        ({"eagle_config": None, IDS: [1, 22, 44]}, "SGLang reads .* within eagle_config alone"),
        (
            {"rope_parameters": {"rope_theta": 1e6}},
            r"rope_theta=10000\.0 and rope_parameters\.rope",
        ),
        ({"norm_before_residual": True}, "norm_before_residual=True is not supported: engines"),
        ({"parallel_drafting": True}, "parallel_drafting=True is not supported: engines"),
        ({"vocab_size": 99, "draft_vocab_size": 40}, r"t2d is \(128,\), but config.json asks for"),
        ({"eagle_config": {IDS: [1, 22, 48]}}, r"layers \(2, 23, 49\): the target has 48; use a"),
    ],
)
def test_a_head_that_the_server_would_misread_is_refused(head_cell, changed, message):
    refused(head_cell(**changed), message)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"fc_norm": True},
        {"num_hidden_layers": 2},
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}},
        {"partial_rotary_factor": 0.5},
        {"hidden_size": 32, "target_hidden_size": 64},
    ],
)
def test_a_head_that_the_server_alone_can_run_is_let_through(head_cell, changed):
    served = head_cell(**changed)
    served.engine.check(served)
