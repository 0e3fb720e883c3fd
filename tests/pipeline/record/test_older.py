"""A record of before 2026-12 says by its parts' names what they can do and how they are served."""

import json
from dataclasses import replace

import pytest

from pipeline.cell.cell import Abilities
from pipeline.record.older import UNKNOWN
from pipeline.record.record import load_record, save_record
from tests.pipeline.synthetic import make_record, make_response


@pytest.mark.parametrize(
    ("drafter", "verify", "abilities"),
    [
        ("ngram", "extend", Abilities(copies_text=True)),
        ("ngram_tree", "graph_captured", Abilities(copies_text=True, captures_verify=True)),
        ("eagle", "fused_allreduce", Abilities(captures_verify=True, fuses_allreduce=True)),
        ("x", "y", Abilities()),
    ],
)
def test_a_record_without_abilities_gets_them_from_its_names(tmp_path, drafter, verify, abilities):
    save_record(make_record(drafter, verify), tmp_path)
    path = tmp_path / "record.json"
    plain = json.loads(path.read_text())
    del plain["abilities"]
    path.write_text(json.dumps(plain))
    assert load_record(tmp_path).abilities == abilities


def test_abilities_that_were_recorded_go_before_names(tmp_path):
    abilities = Abilities(copies_text=True, captures_verify=True)
    save_record(replace(make_record("x", "extend"), abilities=abilities), tmp_path)
    assert load_record(tmp_path).abilities == abilities


def test_the_deploy_command_counts_the_root_as_the_server_does():
    ngram = make_record("ngram", "graph_captured", [make_response()])
    plain = make_record("none", "extend", [make_response()])
    head = make_record("aq_medai_k2", "fused_allreduce", [make_response()])
    heads = "[['SmolLM2-135M-Instruct', 'AQ-MedAI/Kimi-K2-Instruct-eagle3']]"
    head = replace(head, params=head.params | {"drafter.heads": heads})

    assert "--speculative-draft-model-path AQ-MedAI/Kimi-K2-Ins" in head.deploy
    assert "--speculative-num-steps 3 --speculative-eagle-topk 1" in head.deploy
    assert "--speculative-num-draft-tokens 4" in ngram.deploy
    assert "--enforce-disable-flashinfer-allreduce-fusion" in ngram.deploy
    assert "--speculative" not in plain.deploy
    assert make_record("x", "extend", [], settings={"deploy": "serve"}).deploy == "serve"


@pytest.mark.parametrize(("drafter", "verify"), [("x", "extend"), ("ngram", "y"), ("none", "y")])
def test_a_part_of_an_unknown_name_gets_no_command_rather_than_a_wrong_one(drafter, verify):
    assert make_record(drafter, verify, [make_response()]).deploy == UNKNOWN
