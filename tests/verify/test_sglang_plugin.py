"""The plugin against a small stand-in of SGLang: what it records, and what it changes."""

import json
import sys
import types
from itertools import count
from types import SimpleNamespace

import numpy
import pytest
import torch

from verify import sglang_plugin as plugin

MODULES = {
    "sglang.srt.model_executor.model_runner": {"ModelRunner": ["forward"]},
    "sglang.srt.managers.scheduler": {"Scheduler": ["flush_cache"]},
    "sglang.srt.managers.scheduler_components.batch_result_processor": {
        "SchedulerBatchResultProcessor": [
            "process_batch_result_prefill",
            "process_batch_result_decode",
        ]
    },
    "sglang.srt.speculative.eagle_worker_v2": {
        "EagleDraftWorker": ["draft", "_draft_extend_for_decode"]
    },
    "sglang.srt.speculative.cpp_ngram.ngram_corpus": {"NgramCorpus": ["batch_get", "batch_put"]},
    "sglang.srt.model_executor.runner.decode_cuda_graph_runner": {
        "DecodeCudaGraphRunner": ["can_run_graph"]
    },
}


class Mode:
    """A forward mode."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_target_verify(self) -> bool:
        return self.name == "TARGET_VERIFY"

    def is_decode(self) -> bool:
        return self.name == "DECODE"


class Span:
    """A clock that says 1, 2, 3, … ms."""

    numbers = count(1)

    def __init__(self) -> None:
        self.value = next(self.numbers)

    def end(self) -> "Span":
        return self

    def ms(self) -> float:
        return float(self.value)


def batch(mode: str, size: int = 1) -> SimpleNamespace:
    return SimpleNamespace(forward_mode=Mode(mode), batch_size=size)


@pytest.fixture
def recorder(tmp_path) -> plugin.Recorder:
    Span.numbers = count(1)
    return plugin.Recorder(tmp_path, Span)


@pytest.fixture
def written(recorder, tmp_path):
    """Flushes and returns what was written."""

    def flush() -> dict:
        assert recorder.flushed(lambda: True)
        return json.loads((tmp_path / plugin.RECORDS).read_text())

    return flush


def forward(recorder, mode: str, graph: bool = True, draft_worker: bool = False) -> None:
    out = SimpleNamespace(can_run_graph=graph)
    runner = SimpleNamespace(is_draft_worker=draft_worker)
    assert recorder.forward(lambda *_: out, runner, batch(mode)) is out


def result(recorder, *grown: tuple[SimpleNamespace, int]) -> None:
    def process(_, given):
        for request, more in grown:
            request.output_ids.extend([0] * more)

    given = SimpleNamespace(reqs=[request for request, _ in grown])
    recorder.decoded(process, None, given)


def request(rid: str) -> SimpleNamespace:
    return SimpleNamespace(rid=rid, output_ids=[1])


def test_a_step_is_the_draft_before_the_forward_and_what_the_drafter_reads_after(recorder, written):
    one = request("a")
    recorder.prefilled(lambda *_: None, None, SimpleNamespace(reqs=[one]))
    recorder.draft(lambda: None)
    forward(recorder, "TARGET_VERIFY")
    recorder.draft_extend(lambda: None)
    result(recorder, (one, 3))
    records = written()
    step = records["steps"][0]
    assert (step["mode"], step["verify_ms"], step["draft_ms"]) == ("target_verify", 2.0, 1.0 + 3.0)
    assert step["committed"] == {"a": 3}
    assert records["first_s"]["a"] <= step["at_s"]


def test_results_come_back_one_step_later_and_find_their_own_launch(recorder, written):
    one, two = request("a"), request("b")
    forward(recorder, "TARGET_VERIFY", graph=True)
    forward(recorder, "TARGET_VERIFY", graph=False)  # launched before the first result is seen
    result(recorder, (one, 2), (two, 1))
    result(recorder, (one, 0), (two, 4))  # `a` had ended: its last step gave it nothing
    steps = written()["steps"]
    assert [step["graph"] for step in steps] == [True, False]
    assert [step["committed"] for step in steps] == [{"a": 2, "b": 1}, {"b": 4}]


def test_only_the_targets_verify_and_decode_forwards_are_steps(recorder, written):
    forward(recorder, "EXTEND")
    forward(recorder, "DECODE", draft_worker=True)
    assert written()["steps"] == []


def test_a_look_up_is_host_time_of_the_coming_step(recorder, written):
    recorder.lookup(lambda: None)
    forward(recorder, "TARGET_VERIFY")
    result(recorder, (request("a"), 1))
    assert 0 < written()["steps"][0]["draft_ms"] < 100


def test_a_flush_forgets_and_says_what_was_lost(recorder, written):
    forward(recorder, "DECODE")
    assert written()["lost"] == 1
    assert (written()["lost"], written()["flush"]) == (0, 3)


def test_a_refused_flush_keeps_everything(recorder, written):
    forward(recorder, "DECODE")
    result(recorder, (request("a"), 1))
    assert not recorder.flushed(lambda: False)
    assert len(written()["steps"]) == 1


def test_only_verify_steps_are_kept_out_of_the_graphs():
    def captured(*_):
        return "captured"

    assert plugin.eager_verify(captured, None, batch("TARGET_VERIFY")) is False
    assert plugin.eager_verify(captured, None, batch("DECODE")) == "captured"


@pytest.mark.parametrize(("is_sm120", "wanted"), [(True, "trtllm"), (False, "SGLang's own")])
def test_sm120_gets_the_kernel_of_one_node_alone(monkeypatch, is_sm120, wanted):
    monkeypatch.setattr(plugin, "_is_sm120", lambda: is_sm120)

    def own(*_):
        return "SGLang's own"

    assert plugin.resolve_on_sm120(own, "trtllm") == wanted
    for backend, nodes in (("mnnvl", False), ("auto", False), ("trtllm", True)):
        assert plugin.resolve_on_sm120(own, backend, nodes) == "SGLang's own"


def test_the_gate_of_every_call_counts_sm120_as_sm90(monkeypatch):
    module = types.ModuleType("gate")
    exec("_is_sm90_supported = False\ndef applies(n): return _is_sm90_supported", module.__dict__)
    monkeypatch.setitem(sys.modules, "gate", module)
    monkeypatch.setattr(plugin, "_is_sm120", lambda: False)
    assert plugin.applies_on_sm120(module.applies, 4) is False
    monkeypatch.setattr(plugin, "_is_sm120", lambda: True)
    assert plugin.applies_on_sm120(module.applies, 4) is True


class Routed(torch.nn.Module):
    """An embedding, a norm, a router with a bias, and two experts; drawn as SGLang draws them."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        sizes = {"embed": (500, 64), "router": (32, 64), "experts": (2, 48, 64), "bias": (32,)}
        for name, size in sizes.items():
            drawn = torch.empty(size).uniform_(-1e-3, 1e-3, generator=draw)
            self.register_parameter(f"{name}_tokens", torch.nn.Parameter(drawn))
        self.norm = torch.nn.RMSNorm(64)

    def visited(self, token: int) -> set[int]:
        inputs = self.norm(self.embed_tokens[token])
        scores = (self.router_tokens @ inputs).sigmoid() + self.bias_tokens
        return set(scores.topk(4).indices.tolist())


def test_random_weights_of_ordinary_size_send_tokens_to_experts_of_their_own():
    model = Routed()
    with torch.no_grad():
        model.norm.weight.fill_(1e-3)
        assert len(set.union(*map(model.visited, range(8)))) == 4
        plugin.ordinary_weights(lambda _: None, model)
        assert len(set.union(*map(model.visited, range(8)))) > 16
    assert model.experts_tokens.std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert model.embed_tokens.std().item() == pytest.approx(1, rel=0.05)


def test_random_drafts_keep_the_root_and_are_the_same_on_every_rank():
    corpus = SimpleNamespace(draft_token_num=4)

    def found():
        return numpy.full(8, 100), "mask"

    ranks = [plugin.random_drafts(lambda original, _: original()) for _ in range(2)]
    steps = [[rank(found, corpus) for rank in ranks] for _ in range(3)]
    for (tokens, mask), (others, _) in steps:
        assert mask == "mask"
        assert (tokens == others).all()
        assert (tokens[::4] == 100).all()
        assert len(set(tokens.tolist())) > 4
    assert (steps[0][0][0] != steps[1][0][0]).any()


@pytest.fixture
def registered(monkeypatch) -> dict:
    """What the plugin hands to SGLang's registry of hooks."""
    hooks = {}
    registry = types.ModuleType("sglang.srt.plugins.hook_registry")
    registry.HookType = SimpleNamespace(AROUND="around")
    registry.HookRegistry = SimpleNamespace(
        register=lambda target, hook, kind: hooks.update({target: (hook, kind)})
    )
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, registry.__name__, registry)
    return hooks


def test_it_is_inert_in_a_server_of_someone_else(registered, monkeypatch):
    monkeypatch.delenv(plugin.FOLDER, raising=False)
    plugin.activate()
    assert registered == {}


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
def test_it_registers_what_the_cell_needs_and_says_so(
    registered, monkeypatch, tmp_path, caplog, version
):
    for name, value in (
        (plugin.FOLDER, str(tmp_path)),
        (plugin.VERSION, version),
        (plugin.DRAFTER, "ngram"),
        (plugin.EAGER_VERIFY, "1"),
        (plugin.SM120_FUSION, "1"),
        (plugin.RANDOM_WEIGHTS, "1"),
    ):
        monkeypatch.setenv(name, value)
    plugin.activate()
    known = {f"{m}.{c}.{f}" for m, classes in MODULES.items() for c in classes for f in classes[c]}
    eagle = {target for target in known if "eagle" in target}
    more = {plugin._RESOLVE, plugin.FUSION_GATE[version], plugin._DUMMY}
    assert set(registered) == known - eagle | more
    assert {kind for _, kind in registered.values()} == {"around"}
    assert plugin.ANNOUNCEMENT in caplog.text
