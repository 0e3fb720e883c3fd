"""A folder of runs for each test."""

import shutil

import pytest


@pytest.fixture
def runs(tmp_path, empty_store):
    """The folder of runs, with an empty MLflow store."""
    folder = tmp_path / "runs"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder
