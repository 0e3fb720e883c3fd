"""The contract of drafters and verify backends, on the real embedded target."""

import pytest
import torch
from hydra import compose, initialize_config_module

from drafters.base import Proposes
from drafters.eagle3.drafter import Eagle3
from pipeline.cell.cell import Cell
from pipeline.config.instantiate import build_part
from pipeline.workload.prompts import Prompt
from tests.pipeline.config.test_conf import PARTS, names
from verify.base import BuildsStep, NeedsRanks

TEXT = "Repeat this sentence twice: the grey cat sat on the grey mat by the grey wall."


def cell_of(*overrides: str) -> Cell:
    with initialize_config_module("conf", version_base=None):
        config = compose("config", overrides=["sampling.max_new_tokens=24", *overrides])
    parts = {part: build_part(config, part) for part in (*PARTS, "sampling", "parallelism")}
    return Cell(**parts, prompts_digest="")


def able(group: str, ability: type) -> list[str]:
    """Names of the group's yamls whose class has the ability."""
    return [n for n in names(group) if isinstance(getattr(cell_of(f"{group}={n}"), group), ability)]


@pytest.fixture(scope="module")
def prompt(embedded, cache) -> Prompt:
    tokens = embedded.tokenizer(cache).chat([{"role": "user", "content": TEXT}])
    return Prompt("p", "copy", tuple(tokens))


def check(*overrides: str) -> Cell:
    cell = cell_of(*overrides)
    cell.engine.check(cell)
    return cell


def answer(prompt: Prompt, *overrides: str):
    """One response and the proof of the cell that gave it."""
    cell = check(*overrides)
    session = cell.engine.start(cell)
    session.warm_up([prompt])
    response, proof = session.generate(prompt, 0), session.proof()
    session.close()
    assert cell.verify.contradiction(proof) is None
    return response, proof


@pytest.fixture(scope="module")
def plain(prompt):
    return answer(prompt, "drafter=none", "verify=extend")[0].tokens


def skip_without_files(drafter: str) -> None:
    """Heads come with training; one that is not there yet is nothing to test."""
    settings = cell_of(f"drafter={drafter}").drafter
    if isinstance(settings, Eagle3) and not settings.folder().is_dir():
        pytest.skip(f"drafter={drafter}: its head is not there")


def ranks_for(verify: str) -> str:
    """The override that gives a backend the ranks it needs: GPUs where there are some."""
    backend = cell_of(f"verify={verify}").verify
    least = backend.min_ranks if isinstance(backend, NeedsRanks) else 1
    if 0 < torch.cuda.device_count() < least:
        pytest.skip(f"verify={verify} needs {least} GPUs")
    return f"parallelism.tp={least}"


@pytest.mark.parametrize("verify", able("verify", BuildsStep))
@pytest.mark.parametrize("drafter", able("drafter", Proposes))
def test_every_arm_gives_the_plain_greedy_output_and_proves_its_label(
    drafter, verify, prompt, plain
):
    skip_without_files(drafter)
    overrides = (f"drafter={drafter}", f"verify={verify}", ranks_for(verify))
    response, proof = answer(prompt, *overrides)
    assert response.tokens == plain
    assert proof.num_verify_steps == len(response.committed)


def test_without_a_compiler_a_trace_is_captured_and_the_proof_says_so(prompt, plain):
    response, proof = answer(prompt, "verify=graph_captured", "engine.native=off", "drafter=ngram")
    assert proof.capture == "jit_trace"
    assert proof.linear == "torch float32"
    assert response.tokens == plain


@pytest.mark.parametrize(
    ("verify", "drafter", "capture", "allreduce"),
    [
        (("verify=extend",), "ngram_tree", "none", "gloo"),
        (("verify=graph_captured", "verify.allreduce=gloo"), "none", "native_plan", "gloo"),
        (("verify=graph_captured",), "ngram_tree", "native_plan", "shared_memory"),
        (("verify=fused_allreduce",), "ngram_tree", "native_plan", "fused"),
    ],
)
def test_two_ranks_on_a_cpu_give_the_plain_output_with_two_sums_a_layer(
    prompt, plain, verify, drafter, capture, allreduce
):
    cell = (*verify, "parallelism.tp=2", "engine.device=cpu", f"drafter={drafter}")
    response, proof = answer(prompt, *cell)
    assert response.tokens == plain
    assert (proof.capture, proof.allreduce, proof.problem) == (capture, allreduce, "")
    assert proof.allreduces_per_step == 60
    assert proof.fused_allreduces_per_step == (60 if allreduce == "fused" else 0)


def test_a_label_that_the_proof_contradicts_is_named(prompt):
    _, captured = answer(prompt, "verify=graph_captured")
    _, eager = answer(prompt, "verify=extend")
    assert "replayed from a capture" in cell_of("verify=extend").verify.contradiction(captured)
    contradiction = cell_of("verify=graph_captured").verify.contradiction(eager)
    assert "0.0% of 13 verify steps were replayed from a capture (none)" in contradiction


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("parallelism.batch=4", "parallelism.batch=4: engine=torch answers one request at a time"),
        ("engine.threads=-1", r"engine.threads=-1: 0 \(measure\) or more"),
        ("engine.device=tpu", "engine.device=tpu: one of auto, cpu, cuda"),
        ("sampling.max_new_tokens=1", "sampling.max_new_tokens=1: at least 2"),
        ("sampling.temperature=-1", "sampling.temperature=-1"),
        ("parallelism.tp=0", "parallelism.tp=0: must be 1 or more"),
        ("verify=fused_allreduce", r"needs several ranks; set parallelism\.tp=2 or more"),
        ("verify.allreduce=gloo", r"needs several ranks; set parallelism\.tp=2 or more"),
    ],
)
def test_what_cannot_run_is_refused_by_name(override, message):
    with pytest.raises(ValueError, match=message):
        check(override)
