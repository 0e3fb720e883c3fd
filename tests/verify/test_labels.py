"""What a server must do for each backend, and which proofs contradict its label."""

import re
from dataclasses import replace

import pytest

from verify.base import Proof, ServerMode
from verify.extend import Extend
from verify.fused_allreduce import FusedAllreduce
from verify.graph_captured import GraphCaptured

PROOF = Proof("cuda_graph", 100, 100, "dense", "fa3", "custom", 97, 0)


def test_a_server_is_told_what_to_capture_and_how_to_sum():
    assert Extend().server_mode() == ServerMode(True, False, "auto")
    assert Extend(scope="all").server_mode() == ServerMode(False, False, "auto")
    assert GraphCaptured(allreduce="nccl").server_mode() == ServerMode(True, True, "nccl")
    assert FusedAllreduce().server_mode() == ServerMode(True, True, "fused")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Extend(scope="some"), r"verify\.scope=some: must be verify or all"),
        (
            lambda: GraphCaptured(allreduce="x"),
            r"verify\.allreduce=x: must be auto, nccl, custom, shared_memory or gloo",
        ),
    ],
)
def test_an_unknown_choice_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_eager_verify_leaves_a_servers_plain_decode_captured():
    assert "100 of 100 verify steps were replayed" in (Extend().contradiction(PROOF) or "")
    plain = replace(PROOF, step="decode")
    assert Extend().contradiction(plain) is None
    assert "were replayed" in (Extend(scope="all").contradiction(plain) or "")


def test_a_captured_cell_summed_as_it_was_asked():
    assert GraphCaptured(allreduce="custom").contradiction(PROOF) is None
    said = GraphCaptured(allreduce="nccl").contradiction(PROOF)
    assert said == "all-reduces ran as custom; verify.allreduce=nccl was asked"
    fused = replace(PROOF, fused_allreduces_per_step=97)
    said = GraphCaptured().contradiction(fused)
    assert said == "97 of 97 all-reduces a step were fused; a graph_captured cell fuses none"


@pytest.mark.parametrize(
    ("fused", "offered", "wanted"),
    [
        (97, None, None),
        (95, None, "95 of 97 .* needs all"),
        (95, 95, None),
        (94, 95, "94 of 97 .* needs 95"),
        (0, 0, "0 of 97 .* needs 1"),
    ],
)
def test_a_fused_cell_fused_all_that_its_layers_offer(fused, offered, wanted):
    proof = replace(
        PROOF,
        allreduce="fused",
        fused_allreduces_per_step=fused,
        fusable_allreduces_per_step=offered,
    )
    said = FusedAllreduce().contradiction(proof)
    if wanted is None:
        assert said is None
    else:
        assert re.search(wanted, said or "")
