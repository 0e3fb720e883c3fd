"""What all tests need: their own lock, the mark of an engine, and threads that share the cores."""

import os
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # as many processes as cores: read when torch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

# Read when Triton is imported, which the first test's imports may do.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

HERE = Path(__file__).parent
# What loads a model or starts Ray, a server, MLflow or an interpreter; `make check` leaves it out.
ENGINES = (
    "drafters/eagle3/data",
    "drafters/eagle3/test_proposer.py",
    "drafters/eagle3/train",
    "experiments",
    "faults",
    "pipeline/engine",
    "pipeline/gate",
    "pipeline/machine",
    "pipeline/report/test_length.py",
    "pipeline/sweep",
    "pipeline/target",
    "pipeline/test_main.py",
    "pipeline/track",
    "pipeline/workload",
    "verify/native",
    "verify/test_ranks.py",
)


def pytest_collection_modifyitems(items):
    """Mark what needs an engine, and run it first: at the end, nobody waits for a long file."""
    for item in items:
        if item.path.is_relative_to(HERE) and str(item.path.relative_to(HERE)).startswith(ENGINES):
            item.add_marker(pytest.mark.engine)
    items.sort(key=lambda item: item.get_closest_marker("engine") is None)


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    """Move the machine's lock, here and in every process that a test starts."""
    monkeypatch.setenv("SPECROI_LOCK", str(tmp_path / "specroi.lock"))
