"""A machine of its own for each test: lock and MLflow store."""

import shutil

import pytest

from pipeline import lock


@pytest.fixture
def runs(tmp_path, monkeypatch, empty_store):
    """The folder of runs, on a machine where nothing else runs."""
    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = tmp_path / "runs"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder
