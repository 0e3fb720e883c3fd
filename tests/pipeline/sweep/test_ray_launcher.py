"""A cluster that was started elsewhere: another folder, another environment, another process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from pipeline.engine.sglang.versions import FLAGS
from pipeline.record.record import Status
from pipeline.record.sweep_folder import SweepFolder
from tests.pipeline.engine.sglang.conftest import CONFIG

ROOT = Path(__file__).parents[3]
PATIENCE_S = 600.0  # only has to be long enough
LOOPBACK = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on any system: listen on loopback alone
    "RAY_AUTH_MODE": "disabled",
}
GPUS = "0, GPU-a, H200, 5, 143771\n1, GPU-b, H200, 5, 143771"
SETTINGS = (
    "launcher=cluster",
    "target.source=target",
    "engine=sglang",
    "engine.version=0.5.17",
    "parallelism.tp=2",
    "workload=jsonl",
    "workload.path=prompts.jsonl",
    "sampling.max_new_tokens=8",
    "measurement.min_repetitions=2",
    "measurement.max_repetitions=2",
)
KILL = """
import pickle, sys
from pathlib import Path
from tiny_engine import TinyEngine, plan
from pipeline.machine.reaper import marked
from pipeline.sweep import ray_launcher

log, out, mark, patience_s = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4])
ray_launcher.SPAWN_TIMEOUT_S = patience_s  # a busy machine takes long to start a process of Ray's
launcher = ray_launcher.RayLauncher(address="auto")
with launcher.connect():
    worker = launcher.spawn(mark, 0, log)
    planned = plan(TinyEngine())
    worker.begin("start", pickle.dumps(planned.cell), pickle.dumps(planned.prompts))
    worker.result(patience_s)
    server, before = int(log.read_text().split()[1]), marked(f"SPECROI_CELL={mark}")
    worker.kill()
    out.write_text(f"{ {server, worker.pid} <= {*before} } {marked(f'SPECROI_CELL={mark}')}")
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Path:
    """A driver's tool that sees two GPUs, and an interpreter that plays SGLang on them."""
    folder = tmp_path_factory.mktemp("tools")
    fake = ROOT / "tests/pipeline/engine/sglang/fake_server.py"
    flags = json.dumps(sorted(FLAGS))
    scripts = {
        "nvidia-smi": f"case $1 in *uuid,name*) echo '{GPUS}';; esac",
        "sglang-python": f"echo $CUDA_VISIBLE_DEVICES >>{folder}/seen\n"
        f"FAKE_FLAGS='{flags}' exec {sys.executable} {fake} \"$@\"",
    }
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def cluster(tools):
    """Address of a cluster with two GPUs, whose processes know nothing of this project."""
    place = Path(tempfile.mkdtemp(prefix="sr", dir="/tmp"))  # Ray's socket paths must be short
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= LOOPBACK | {"PATH": f"{tools}:{os.environ['PATH']}"}
    start = "start --head --block --port=0 --node-ip-address=127.0.0.1 --num-cpus=1 --num-gpus=2"
    options = f"--include-dashboard=false --object-store-memory={80 * 2**20} --temp-dir={place}/r"
    command = [sys.executable, "-m", "ray.scripts.scripts", *start.split(), *options.split()]
    with (
        (place / "log").open("wb") as log,
        subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=log) as ray,
    ):
        end = time.monotonic() + PATIENCE_S
        while "Ray runtime started" not in (place / "log").read_text():
            assert ray.poll() is None, (place / "log").read_text()
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.1)
        yield (place / "r" / "ray_current_cluster").read_text().strip()
        family = psutil.Process(ray.pid).children(recursive=True)
        ray.terminate()
        ray.wait(PATIENCE_S)
        _, alive = psutil.wait_procs(family, timeout=5)
        for process in alive:
            process.kill()
    shutil.rmtree(place)


@pytest.fixture
def environment(cluster, tmp_path):
    """The driver's: it runs in `tmp_path`, and its paths are relative to that."""
    places = (os.path.relpath(place, tmp_path) for place in (ROOT, ROOT / "tests/faults"))
    return (
        os.environ
        | LOOPBACK
        | {
            "PYTHONPATH": os.pathsep.join(places),
            "RAY_ADDRESS": cluster,  # of several clusters on this machine, `auto` means this one
        }
    )


def test_a_grid_of_servers_runs_on_a_cluster_that_was_started_elsewhere(
    environment, tools, tmp_path, empty_store
):
    (tmp_path / "target").mkdir()
    (tmp_path / "target/config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "target/tokenizer_config.json").write_text("{}")
    Tokenizer(WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "target/tokenizer.json"))
    (tmp_path / "runs").mkdir()
    shutil.copy(empty_store, tmp_path / "runs")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a a a"}\n')
    grid = ["drafter=none,ngram", "verify=graph_captured", f"engine.python={tools}/sglang-python"]
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *SETTINGS, *grid],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sweep,) = (tmp_path / "runs/sweeps").iterdir()
    assert [record.status for record in SweepFolder(sweep).records()] == [Status.OK] * 2
    assert (sweep / "report.md").is_file()
    gpus = (tools / "seen").read_text().splitlines()
    assert set(gpus[-4:]) == {"0,1"}, "each cell asks the version, then serves, on both its GPUs"


def test_what_a_killed_worker_started_is_gone_before_the_next_cell_begins(environment, tmp_path):
    log, out = tmp_path / "cell" / "worker.log", tmp_path / "out"
    mark = f"{uuid.uuid4().hex}/cell"
    command = [sys.executable, "-c", KILL, str(log), str(out), mark, str(PATIENCE_S / 2)]
    subprocess.run(command, cwd=tmp_path, env=environment, timeout=PATIENCE_S, check=True)
    assert out.read_text() == "True []", "worker and server were there before, nothing is after"
