"""The grid of all verify backends on two ranks of a CPU, by the command a user types."""

import json
import os
import subprocess
import sys
import tempfile

import pytest

from pipeline.record.sweep_folder import SweepFolder
from verify.native.build import find_compiler

GRID = ["drafter=ngram", "verify=extend,graph_captured,fused_allreduce", "parallelism.tp=2"]
SHORT = ["sampling.max_new_tokens=12", "measurement.min_repetitions=1"]
ALLREDUCE = {"extend": "gloo", "graph_captured": "shared_memory", "fused_allreduce": "fused"}


@pytest.fixture
def short_folder():
    """Ray's sockets have no room for a long path."""
    with tempfile.TemporaryDirectory(prefix="s") as folder:
        yield folder


@pytest.mark.skipif(find_compiler() is None, reason="a compiled step needs a compiler")
def test_all_backends_run_on_two_ranks_keep_the_output_and_name_their_all_reduce(
    tmp_path, short_folder
):
    prompts, runs = tmp_path / "prompts.jsonl", tmp_path / "runs"
    prompts.write_text(json.dumps({"prompt": "Say: a cat sat on a mat. A cat sat on a"}))
    workload = ["workload=jsonl", f"workload.path={prompts}", "measurement.max_repetitions=1"]
    command = [sys.executable, "-m", "pipeline", f"runs={runs}", "engine.device=cpu"]
    environment = {**os.environ, "TMPDIR": short_folder}
    done = subprocess.run(
        [*command, *GRID, *SHORT, *workload],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (runs / "sweeps").iterdir()
    records = SweepFolder(folder).records()
    assert [(r.label, str(r.status)) for r in records] == [
        (f"ngram × {verify}", "ok") for verify in ALLREDUCE
    ]
    for record in records:
        way = ALLREDUCE[record.params["verify"]]
        proof, [[response]] = record.proof, record.repetitions
        assert (proof.allreduce, proof.allreduces_per_step, proof.problem) == (way, 60, "")
        assert proof.graph_share == (0 if way == "gloo" else 1)
        assert response.tokens == records[0].repetitions[0][0].tokens
    report = (folder / "report.md").read_text()
    assert all(f"{way} 60" in report for way in ALLREDUCE.values())
