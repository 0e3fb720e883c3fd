"""A machine of its own for each test: lock and MLflow store."""

import shutil
import warnings

import pytest
from mlflow import MlflowClient

from pipeline import lock


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """An MLflow store without runs: making one takes longer than a test."""
    folder = tmp_path_factory.mktemp("store")
    with warnings.catch_warnings(action="ignore"):  # SQLAlchemy's, about MLflow's own tables
        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()
    return folder / "mlflow.db"


@pytest.fixture
def runs(tmp_path, monkeypatch, empty_store):
    """The folder of runs, on a machine where nothing else runs."""
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / "runs"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder
