"""What a grid would start, printed; nothing is started, and no prompt or weight is needed."""

import pytest
from hydra import compose, initialize_config_module

from pipeline.sweep.launch import launch

KIMI = ["target=kimi_k2_5", "engine=sglang", "engine.version=0.5.17", "parallelism.tp=8"]


def said(capsys, *jobs: list[str]) -> str:
    with initialize_config_module("conf", version_base=None):
        configs = [compose("config", overrides=[*job, "dry_run=true"]) for job in jobs]
    assert launch(configs, [[*job, "dry_run=true"] for job in jobs]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("drafter", ["none", "ngram", "ngram_tree", "aq_medai_k2"])
@pytest.mark.parametrize("verify", ["extend", "graph_captured", "fused_allreduce"])
def test_every_cell_of_the_large_target_has_its_command(capsys, drafter, verify):
    out = said(capsys, [*KIMI, f"drafter={drafter}", f"verify={verify}"])
    assert "-m sglang.launch_server --model-path moonshotai/Kimi-K2.5 --tp-size 8" in out
    assert "TORCH_SYMM_MEM_DISABLE_MULTICAST=1" in out
    assert "refused" not in out
    assert ("AQ-MedAI/Kimi-K2-Instruct-eagle3" in out) == (drafter == "aq_medai_k2")


def test_a_cell_that_cannot_run_says_why_and_the_others_are_still_shown(capsys):
    bad = [*KIMI[:3], "parallelism.tp=1", "verify=fused_allreduce"]
    out = said(capsys, bad, [*KIMI, "verify=extend"])
    assert "# refused: verify: fused all-reduces need several ranks" in out
    assert out.count("-m sglang.launch_server") == 1


def test_an_engine_without_a_command_says_so(capsys):
    out = said(capsys, ["drafter=ngram"])
    assert "engine=torch runs in the worker's own process: no command" in out
    assert "dry_run" not in out
