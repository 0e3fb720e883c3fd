"""The real thing, small: this tree against itself, on the embedded target."""

import json
from pathlib import Path

import pytest

from pipeline.gate.__main__ import main

# MLflow's SQL store sets up its tables in a way that newer SQLAlchemy calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")
HERE = Path(__file__).parents[3]


def test_this_tree_equals_itself_in_all_that_is_exact(runs, tmp_path):
    small = ["drafter=ngram", "workload.per_class=1", "workload.categories=[chat,math]"]
    small += ["sampling.max_new_tokens=6", "engine.threads=1", "gate.max_rounds=6"]
    trees = [f"candidate={HERE}", f"baseline={HERE}"]
    status = main([*trees, *small, f"runs={runs}", f"gate.output={tmp_path}"])
    found = json.loads((tmp_path / "gate.json").read_text())
    assert (found["differences"], found["findings"]) == ([], [])
    assert found["measured"].startswith("6 rounds, 12 of at most 12 pairs")
    assert len(found["timed"]) == 2  # what they say depends on the machine's other work
    assert status == {"pass": 0, "regression": 1, "undecided": 2}[found["verdict"]]
    assert found["arms"][0][0]["proof"]["capture"] in ("native_plan", "jit_trace")
