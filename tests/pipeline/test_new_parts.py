"""A drafter and a backend that nobody knew: one module and one yaml each, and no other edit."""

import ast
import contextlib
import importlib
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from mlflow import MlflowClient

import conf
import drafters
import pipeline
import verify
from pipeline.cell.cell import Abilities, Cell
from pipeline.engine.sglang.arguments import deploy_elsewhere
from pipeline.judge.comparison import compare
from pipeline.measure.wording import cell_names
from pipeline.record.record import Status
from pipeline.record.sweep_folder import SweepFolder
from pipeline.report.write import write_report
from pipeline.roi.advisor import advise
from pipeline.roi.step_anatomy import anatomy
from pipeline.roi.verdict import class_verdicts
from pipeline.sweep.build import build_cells
from pipeline.sweep.launch import run_sweep
from tests.pipeline.inline import InlineLauncher, make_settings

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")

# Each of them is all that a newcomer writes.
NEW = {
    "drafters/parrot.py": '''
"""Say the last token again."""

from dataclasses import dataclass

from drafters.base import Draft


@dataclass(frozen=True)
class Parrot:
    name: str = "parrot"
    num_draft_tokens: int = 2
    words: int = 1
    copies_text = True
    note = "parrot has a beak"

    def capture_layers(self, num_layers):
        return ()

    def start(self, target):
        return self

    def begin(self, context):
        pass

    def propose(self, context):
        return Draft.chain([context.tokens[-1]] * self.num_draft_tokens)

    def close(self):
        pass

    def sglang_arguments(self):
        return {"speculative-algorithm": "PARROT", "speculative-parrot-words": self.words}
''',
    "conf/drafter/parrot.yaml": "_target_: drafters.parrot.Parrot\nwords: 3\n",
    "verify/replayed.py": '''
"""A captured step of another name."""

from dataclasses import dataclass

from verify.base import ServerMode
from verify.graph_captured import GraphCaptured, outside_capture


@dataclass(frozen=True)
class Replayed:
    name: str = "replayed"
    captures_verify = True
    fuses_allreduce = False

    def server_mode(self):
        return ServerMode(captures_decode=True, captures_verify=True, allreduce="nccl")

    def build(self, model, width, threads):
        return GraphCaptured().build(model, width, threads)

    def contradiction(self, proof):
        return outside_capture(proof)
''',
    "conf/verify/replayed.yaml": "_target_: verify.replayed.Replayed\n",
}
GRID = [(d, v) for d in ("none", "parrot") for v in ("extend", "replayed")]
SMALL = (
    "engine.threads=1",
    "workload.per_class=1",
    "workload.categories=[chat,copy]",
    "sampling.max_new_tokens=8",
)


@contextlib.contextmanager
def added(folder: Path):
    """Let the packages see the new files for a while, as if they lay in the tree."""
    for name, text in NEW.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    packages = {drafters: folder / "drafters", verify: folder / "verify"}
    for package, path in packages.items():
        package.__path__.append(str(path))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for package, path in packages.items():
            package.__path__.remove(str(path))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory, empty_store):
    """A real sweep of old and new parts, run to report and MLflow."""
    folder, runs = tmp_path_factory.mktemp("new"), tmp_path_factory.mktemp("runs")
    shutil.copy(empty_store, runs)
    with pytest.MonkeyPatch.context() as patch, added(folder):
        patch.setenv("SPECROI_LOCK", str(runs / "lock"))
        shared = (f"hydra.searchpath=[file://{folder}/conf]", *SMALL)
        jobs = [(*shared, f"drafter={d}", f"verify={v}") for d, v in GRID]
        with initialize_config_module("conf", version_base="1.3"):
            configs = [compose("config", overrides=list(job)) for job in jobs]
        planned = build_cells(configs, jobs, "refuse")
        settings = make_settings(runs, InlineLauncher())
        assert run_sweep(planned, settings, time.perf_counter()) == 0
        (path,) = (runs / "sweeps").iterdir()
        yield SweepFolder(path)


def by_parts(records):
    """Return records by the names of drafter and backend."""
    return {(r.params["drafter"], r.params["verify"]): r for r in records}


def timed(record):
    """Return a record with times that do not depend on this machine: eager takes three times."""
    verify_ms = 10.0 if record.abilities.captures_verify else 30.0

    def fixed(response):
        steps = len(response.committed)
        return replace(
            response,
            verify_ms=(verify_ms,) * steps,
            draft_ms=(0.0,) * steps,
            step_ms=(verify_ms + 1,) * steps,
            decode_ms=(verify_ms + 1) * steps,
            others_cpu=-1,
        )

    repetitions = tuple(tuple(map(fixed, each)) for each in record.repetitions)
    return replace(record, repetitions=repetitions)


def test_new_parts_run_and_keep_the_targets_output(sweep):
    records = by_parts(sweep.records())
    assert list(records) == GRID
    (comparison,) = compare(list(records.values()))
    assert [r.status for r in comparison.records] == [Status.OK] * 4
    plain = records["none", "replayed"]
    assert comparison.lossless[plain.cell_id].reference == "none × extend"
    assert records["parrot", "replayed"].abilities == Abilities(True, True, False)
    assert records["none", "extend"].abilities == Abilities()


def test_the_verdict_speaks_of_new_parts_by_what_they_can_do(sweep):
    records = [timed(r) for r in sweep.records()]
    own = by_parts(records)
    (comparison,) = compare(records)
    eager, captured = own["parrot", "extend"], own["parrot", "replayed"]

    found = {(a.cell_id, a.rule): a.text for a in advise(comparison)}
    assert "compare drafters on parrot × replayed only" in found[eager.cell_id, "host bound"]
    assert (captured.cell_id, "host bound") not in found
    assert not [1 for _, rule in found if rule in ("broken drafter", "left the graph")]

    first = anatomy(comparison).parts[0]
    assert first.name == "calls, launches and gaps of an eager forward"
    assert first.change == "verify=replayed instead of extend"
    assert first.proof.startswith("the report's share of captured steps is 1")

    for verdict in class_verdicts(comparison, cell_names(records)):
        levers = {gain.name for gain in verdict.verdict.gains}
        assert not [name for name in levers if "training data" in name], "copying needs none"


def test_new_parts_are_served_by_the_arguments_that_they_name(sweep):
    records = by_parts(sweep.records())
    drafted, plain = records["parrot", "replayed"].deploy, records["none", "replayed"].deploy
    for argument in (
        "--speculative-algorithm PARROT",
        "--speculative-parrot-words 3",
        "--speculative-num-draft-tokens 3",
        "--cuda-graph-backend-decode full",
        "--disable-custom-all-reduce",
        "--tp-size 1",
    ):
        assert argument in drafted.replace("\n", " ")
    assert "--speculative" not in plain
    assert "--cuda-graph-backend-decode disabled" in records["parrot", "extend"].deploy
    model = re.search(r"--model-path (\S+)", drafted)[1]
    assert (Path(model) / "config.json").is_file()


def test_the_report_shows_new_parts_their_note_and_their_commands(sweep, tmp_path):
    records = [timed(r) for r in sweep.records()]
    text = write_report(records, tmp_path, {}).read_text()
    details = (tmp_path / "report-details.md").read_text()
    assert "parrot × replayed" in text
    assert "Parrot has a beak." in text
    assert "--speculative-algorithm PARROT" in details
    assert "EAGLE3" not in text + details


def test_mlflow_has_a_run_of_each_new_cell_with_its_settings(sweep, tmp_path):
    client = MlflowClient(f"sqlite:///{sweep.path.parents[1]}/mlflow.db")
    (experiment,) = (e for e in client.search_experiments() if e.name == "tests")
    query = f"tags.sweep_id = '{sweep.sweep_id}' and tags.kind = 'cell'"
    runs = client.search_runs([experiment.experiment_id], query)
    found = {(r.data.params["drafter"], r.data.params["verify"]): r.data for r in runs}
    assert set(found) == set(GRID)
    new = found["parrot", "replayed"]
    assert new.params["drafter.words"] == "3"
    assert new.params["drafter.note"] == "parrot has a beak"
    assert new.tags["status"] == "ok"
    assert new.metrics["accept_length"] >= 1
    (run,) = (r for r in runs if r.data is new)
    path = client.download_artifacts(run.info.run_id, "deploy.txt", str(tmp_path))
    assert "--speculative-algorithm PARROT" in Path(path).read_text()


class Mute:
    """A part that says nothing of a server."""

    name = "mute"
    num_draft_tokens = 2
    captures_verify = fuses_allreduce = False


@pytest.mark.parametrize(
    ("part", "lacks"),
    [
        ("drafter", "# SGLang cannot serve this cell: drafter=mute has no sglang_arguments()"),
        ("verify", "# SGLang cannot serve this cell: verify=mute has no server_mode()"),
    ],
)
def test_what_no_server_can_run_gets_the_reason_instead_of_a_command(part, lacks, cache):
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", overrides=["drafter=ngram"])
    (planned,) = build_cells([config], [("drafter=ngram",)], "refuse")
    cell: Cell = replace(planned.cell, **{part: Mute()})
    assert deploy_elsewhere(cell, cache) == lacks


def names_of(group: str) -> set[str]:
    """Return the names in `conf` of drafters or backends, plain decoding aside."""
    return {p.stem for p in (Path(conf.__file__).parent / group).glob("*.yaml")} - {"none"}


@pytest.mark.parametrize("room", ["roi", "judge", "report", "measure", "track", "gate", "record"])
def test_no_room_above_the_engines_knows_a_drafter_or_a_backend_by_name(room):
    names = names_of("drafter") | names_of("verify")
    word = re.compile(rf"\b({'|'.join(names)})\b")
    for path in (Path(pipeline.__file__).parent / room).rglob("*.py"):
        if path.name == "older.py":  # what was recorded before records carried abilities
            continue
        tree = ast.parse(path.read_text())
        documentation = {  # which may give an example
            id(n.value)
            for n in ast.walk(tree)
            if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in documentation:
                assert not (isinstance(node.value, str) and word.search(node.value)), (
                    f"{path}:{node.lineno} names {node.value!r}"
                )
            if isinstance(node, ast.ImportFrom):
                last = (node.module or "").rpartition(".")[2]
                assert last not in names, f"{path}:{node.lineno} imports {node.module}"
