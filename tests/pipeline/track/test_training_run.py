"""What training gets from the pipeline, on the embedded target and a store of its own."""

import pytest
from hydra import compose, initialize_config_module
from mlflow import MlflowClient

from drafters.eagle3.checkpoint import save_head
from drafters.eagle3.drafter import Eagle3
from drafters.eagle3.shape import HeadShape
from pipeline.cell.cell import Cell, Parallelism, Sampling
from pipeline.config.instantiate import build_part
from pipeline.engine.torch.engine import TorchEngine
from pipeline.sweep.held_out import HeldOut
from pipeline.track.training_run import MlflowRun
from pipeline.workload.sources import Classes
from tests.drafters.eagle3.heads import random_head
from verify.extend import Extend
from verify.graph_captured import GraphCaptured

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
WORKLOAD = Classes(per_class=1, categories=("chat",))
SAMPLING = Sampling(max_new_tokens=10)


@pytest.fixture(scope="module")
def head(embedded, cache, tmp_path_factory):
    target = embedded.checkpoint(cache).shape()
    shape = HeadShape(
        target.hidden_size, 256, 4, 2, 32, target.vocab_size, 512, 1e4, 1e-5, target.max_positions
    )
    folder = tmp_path_factory.mktemp("head")
    save_head(random_head(shape=shape, capture_ids=(1, 14, 26)), folder)
    return folder


def test_a_heads_accept_length_is_measured_as_a_cells(embedded, cache, head):
    held_out = HeldOut(embedded, WORKLOAD, TorchEngine(), GraphCaptured(), SAMPLING, 3)
    found = held_out(head, cache)
    assert found["num_prompts"] == 1
    assert 1 <= found["accept_length"] <= 4
    assert found["accept_length/chat"] == found["accept_length"]


@pytest.mark.parametrize("breadth", [1, 2])
@pytest.mark.parametrize("verify", [Extend(), GraphCaptured()], ids=["extend", "captured"])
def test_any_head_leaves_the_targets_output_as_it_is(embedded, cache, head, verify, breadth):
    with initialize_config_module("conf", version_base=None):
        plain = build_part(compose("config"), "drafter")
    drafter = Eagle3(
        "e", embedded.name, {embedded.name: str(head)}, num_draft_tokens=4, breadth=breadth,
        depth=3 if breadth > 1 else 0,
    )  # fmt: skip
    prompts = list(WORKLOAD.load(embedded, cache))
    tokens = []
    for arm in (plain, drafter):
        cell = Cell(embedded, arm, verify, TorchEngine(), WORKLOAD, SAMPLING, Parallelism(), "")
        cell.engine.check(cell)
        session = cell.engine.start(cell)
        session.warm_up(prompts)
        tokens.append(session.generate(prompts[0], 0).tokens)
        session.close()
    assert tokens[0] == tokens[1]


def test_a_training_run_is_one_run_in_mlflow_however_often_it_is_started(tmp_path):
    for step in (10, 20):
        run = MlflowRun(None, "specroi", str(tmp_path))
        run.begin("heads/a", {"samples": "37"})
        run.metrics(step, {"loss_1": 1.0 / step})
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    found = client.search_runs([client.get_experiment_by_name("specroi").experiment_id])
    assert len(found) == 1
    assert found[0].data.params == {"samples": "37"}
    history = client.get_metric_history(found[0].info.run_id, "loss_1")
    assert [(metric.step, metric.value) for metric in history] == [(10, 0.1), (20, 0.05)]


def test_a_head_is_kept_with_its_run(tmp_path, head):
    run = MlflowRun(None, "specroi", str(tmp_path))
    run.begin("heads/a", {})
    run.end(head)
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("specroi").experiment_id])
    names = {item.path for item in client.list_artifacts(found.info.run_id, "head")}
    assert names == {"head/config.json", "head/model.safetensors"}
    assert found.info.status == "FINISHED"
