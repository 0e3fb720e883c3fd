"""From a cell to a command: one list, the same for both versions, never against the label."""

from dataclasses import replace
from pathlib import Path

import pytest

from drafters.ngram import Ngram
from drafters.standalone import Standalone
from pipeline.cell.cell import Parallelism, Sampling
from pipeline.engine.sglang.arguments import deploy_elsewhere, graph_sizes, server_arguments
from pipeline.engine.sglang.environment import SAFETY, server_environment
from pipeline.engine.sglang.extras import checked_extras
from pipeline.engine.sglang.versions import FLAGS
from verify.extend import Extend
from verify.fused_allreduce import FusedAllreduce
from verify.graph_captured import GraphCaptured

VERIFY = [
    (
        Extend(),
        ["--cuda-graph-backend-decode full", "--enforce-disable-flashinfer-allreduce-fusion"],
    ),
    (Extend(scope="all"), ["--cuda-graph-backend-decode disabled"]),
    (GraphCaptured(), ["--cuda-graph-backend-decode full"]),
    (GraphCaptured(allreduce="nccl"), ["--disable-custom-all-reduce"]),
    (FusedAllreduce(), ["--flashinfer-allreduce-fusion-backend trtllm"]),
]


def words(cell) -> str:
    return " ".join(server_arguments(cell, cell.engine, None).words(1234))


@pytest.mark.parametrize(("verify", "wanted"), VERIFY, ids=str)
def test_each_backend_is_named_by_its_own_arguments(cell, verify, wanted):
    said = words(replace(cell, verify=verify, parallelism=Parallelism(tp=2)))
    assert all(part in said for part in wanted)
    assert "mnnvl" not in said
    assert ("trtllm" in said) == isinstance(verify, FusedAllreduce)
    assert ("--cuda-graph-bs-decode" in said) == ("decode full" in said)


@pytest.mark.parametrize("drafter", [Ngram(), Standalone("a/b")], ids=["ngram", "standalone"])
@pytest.mark.parametrize(("verify", "_"), VERIFY, ids=str)
def test_every_argument_is_in_the_table_of_names(cell, drafter, verify, _):
    said = words(replace(cell, drafter=drafter, verify=verify)).split()
    assert {word[2:] for word in said if word.startswith("--")} <= FLAGS


def test_cells_of_a_comparison_differ_in_their_label_alone(cell):
    plain, ngram = words(cell).split(), words(replace(cell, drafter=Ngram())).split()
    differs = set(plain) ^ set(ngram)
    assert all("specroi-" in word or "spec" in word or word in ("NGRAM", "4") for word in differs)


def test_the_root_is_counted_here_and_nowhere_else(cell):
    assert "--speculative-num-draft-tokens 4" in words(replace(cell, drafter=Ngram()))


def test_the_deploy_command_says_where_only_the_plugin_made_verify_eager(cell, ngram_cell):
    def deploy(cell, verify):
        return server_arguments(replace(cell, verify=verify), cell.engine, None).deploy()

    assert deploy(ngram_cell, Extend()).startswith("# a server captures verify steps together")
    for served in (
        deploy(ngram_cell, GraphCaptured()),
        deploy(ngram_cell, Extend(scope="all")),
        deploy(cell, Extend()),
    ):
        assert served.startswith("python -m sglang.launch_server")


@pytest.mark.parametrize("drafter", [Ngram(breadth=2), Standalone("a/b")], ids=str)
def test_a_cell_of_another_engine_is_served_by_the_same_arguments(cell, drafter):
    cell = replace(cell, drafter=drafter)
    own = server_arguments(cell, cell.engine, None)
    elsewhere = deploy_elsewhere(cell, Path())
    for flag, value in own.drafter:
        assert f"--{flag} {value}" in elsewhere
    assert set(elsewhere.split()) <= set(own.deploy().split())
    assert "--attention-backend" not in elsewhere, "nothing was measured of it"
    eager = deploy_elsewhere(replace(cell, verify=Extend()), Path())
    assert "--cuda-graph-backend-decode disabled" in eager, "as an engine without a server has it"


def test_every_batch_that_can_run_is_captured():
    assert graph_sizes(1) == [1]
    assert graph_sizes(4) == [1, 2, 3, 4]
    assert graph_sizes(20) == [1, 2, 3, 4, 5, 6, 7, 8, 16, 20]


@pytest.mark.parametrize(("verify", "_"), VERIFY, ids=str)
def test_nvlink_multicast_is_off_in_every_environment(cell, verify, _, tmp_path):
    with_verify = replace(cell, verify=verify)
    environment = server_environment(
        with_verify, server_arguments(with_verify, cell.engine, None), "0.5.17", tmp_path
    )
    assert environment.items() >= SAFETY.items()
    eager = environment.get("SPECROI_SGLANG_EAGER_VERIFY")
    assert eager == ("1" if verify == Extend() else None)


def test_a_held_accept_length_reaches_the_server_of_speculative_cells_alone(ngram_cell, cell):
    def variables(each):
        held = replace(each, sampling=Sampling(8, held_accept_length=2.5))
        return server_environment(held, server_arguments(held, held.engine, None), "0.5.17", "x")

    assert variables(ngram_cell)["SGLANG_SIMULATE_ACC_LEN"] == "2.5"
    assert variables(ngram_cell)["SGLANG_SIMULATE_ACC_TOKEN_MODE"] == "fixed"
    chain = replace(ngram_cell, drafter=Standalone("a/b"))
    assert variables(chain)["SGLANG_SIMULATE_ACC_TOKEN_MODE"] == "real-draft-token"
    assert "SGLANG_SIMULATE_ACC_LEN" not in variables(cell)


def test_a_server_with_random_weights_is_told_so(cell):
    def told(each):
        environment = server_environment(
            each, server_arguments(each, each.engine, None), "0.5.17", "x"
        )
        return "SPECROI_SGLANG_RANDOM_WEIGHTS" in environment

    assert not told(cell)
    assert told(replace(cell, engine=replace(cell.engine, load_format="dummy")))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--enable-nccl-nvls", "turns on NVLink multicast"),
        ("--enable-symm-mem", "turns on NVLink multicast"),
        ("--enable-torch-symm-mem", "uses NVLink multicast"),
        ("--enable-torch-symm", "uses NVLink multicast"),
        ("--enable-mscclpp", "uses NVLink multicast"),
        ("--flashinfer-allreduce-fusion-backend=mnnvl", "may create NVLink multicast"),
        ("--enable-flashinfer-allreduce-fusion", "it means auto"),
        ("--speculative-num-steps", "set drafter instead"),
        ("--cuda-graph-backend-decode", "set verify instead"),
        ("--disable-cuda-graph", "set verify instead"),
        ("--tp", r"set parallelism\.tp instead"),
        ("--attention-backend", r"set engine\.attention instead"),
        ("--attention-back", r"set engine\.attention instead"),
        ("--decode-attention-backend", r"set engine\.attention instead"),
        ("--prefill-attention", r"set engine\.attention instead"),
        ("--pp-size", r"set parallelism\.tp instead"),
        ("-tp", "use the long name"),
    ],
)
def test_an_extra_argument_against_the_label_or_unsafe_is_refused(engine, argument, message):
    with pytest.raises(ValueError, match=message):
        replace(engine, extra_args=("--watchdog-timeout", "9", argument))


def test_other_extra_arguments_reach_the_server(cell):
    extra = ("--watchdog-timeout", "600", "--speculative-draft-attention-backend", "triton")
    assert checked_extras(extra, "0.5.17") == extra
    assert words(replace(cell, engine=replace(cell.engine, extra_args=extra))).endswith(
        " ".join(extra)
    )
