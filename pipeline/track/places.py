"""Where a store and its artifacts are: compared with the place in use before anything is sent.

MLflow keeps absolute places, makes folders that are missing, and finds out at the first upload that
a library is not there.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pipeline.config.messages import masked
from pipeline.track.client import TrackerAway

if TYPE_CHECKING:
    from mlflow.entities import Experiment

ARTIFACTS = "mlartifacts"  # our own place for them, in the folder of runs
_SQLITE = "sqlite:///"
_PROXIED = ("mlflow-artifacts", "http", "https", "dbfs", "databricks")  # the server sends them on
_LIBRARIES = {
    "s3": "boto3", "r2": "boto3", "b2": "boto3", "gs": "google.cloud.storage",
    "wasbs": "azure.storage.blob", "abfss": "azure.storage.filedatalake", "hdfs": "pyarrow",
    "viewfs": "pyarrow", "sftp": "paramiko", "ftp": "ftplib",
}  # fmt: skip


def is_sqlite(uri: str) -> bool:
    """Return whether a tracking URI is a SQLite file."""
    return uri.startswith("sqlite:")


def store_folder(uri: str) -> Path:
    """Return the folder of a SQLite store, or the present one for a server."""
    path = uri.partition("?")[0].removeprefix(_SQLITE)
    return Path(path).absolute().parent if uri.startswith(_SQLITE) else Path.cwd()


def check_store(uri: str) -> None:
    """Refuse to make anew a store that a sweep was tracked in.

    Raises:
        ValueError: Its file is gone.
    """
    if not uri.startswith(_SQLITE):
        return
    path = Path(uri.partition("?")[0].removeprefix(_SQLITE))
    if not path.is_file():
        raise ValueError(
            f"tracking.uri={masked(uri)}: the store that this sweep was tracked in is gone (was the"
            " folder of runs moved?); say where to send it: --uri sqlite:////PATH/mlflow.db, or"
            " another tracking URI"
        )


def check_experiment(experiment: Experiment, uri: str, runs: Path, used: bool) -> None:
    """Refuse an experiment that takes no runs, or whose artifacts are kept at a lost place.

    Args:
        experiment: As the store has it.
        uri: The tracking URI.
        runs: The folder of runs.
        used: The experiment has runs.

    Raises:
        ValueError: Naming the experiment and the ways out.
    """
    name, setting = experiment.name, f"tracking.experiment={experiment.name}"
    if experiment.lifecycle_stage != "active":
        raise ValueError(
            f"{setting}: that experiment is {experiment.lifecycle_stage}; restore it"
            f" (MLFLOW_TRACKING_URI={masked(uri)} mlflow experiments restore -x"
            f" {experiment.experiment_id}), or use another name: tracking.experiment=NAME"
        )
    place = local_path(experiment.artifact_location or "")
    if place is None or not is_sqlite(uri):
        return
    ours, beside = (runs / ARTIFACTS).resolve(), store_folder(uri).resolve() == runs.resolve()
    elsewhere = beside and place.name == ARTIFACTS and place.resolve() != ours
    above = place.parent if used else place.parent.parent  # MLflow's own are two levels deep
    if elsewhere or (not place.exists() and not above.is_dir()):
        raise ValueError(
            f"{setting}: its artifacts are kept in {place}, which is"
            f" {'not in runs=' + str(runs) if elsewhere else 'not there'} (was the folder of runs"
            f" moved or copied?); move it back, or begin another: tracking.experiment={name}_2, or"
            " tracking.uri=sqlite:////PATH/mlflow.db (`python -m pipeline.track sync` takes --uri)"
        )


def check_writable(location: str, uri: str) -> None:
    """Find out before the first upload whether this client can write artifacts there.

    Raises:
        TrackerAway: It cannot, naming place and cause.
    """
    scheme = urlsplit(location).scheme.lower()
    if not location or scheme in _PROXIED:
        return
    said = f"artifacts go to {masked(location)}"
    if (place := local_path(location)) is not None:
        _check_folder(place, said, uri)
        return
    library = _LIBRARIES.get(scheme)
    if library is not None and not _installed(library):
        raise TrackerAway(f"{said}, which needs the library {library}; pip install it")
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    try:
        get_artifact_repository(location)
    except Exception as error:  # noqa: BLE001 - plugins have errors of their own
        raise TrackerAway(f"{said}: {str(error).partition(chr(10))[0][:80]}") from None


def _check_folder(place: Path, said: str, uri: str) -> None:
    """Refuse a folder that cannot be written, or that is a server's own."""
    if not place.exists() and not is_sqlite(uri) and urlsplit(uri).scheme.startswith("http"):
        raise TrackerAway(
            f"{said}, a folder of the server's machine; start it with --serve-artifacts"
        )
    nearest = place
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise TrackerAway(f"{said}, and {nearest} is no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise TrackerAway(f"{said}, and {nearest} cannot be written")


def local_path(location: str) -> Path | None:
    """Return the folder that an artifact location names on this machine, or None."""
    parts = urlsplit(location)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return Path(location) if location and not parts.scheme else None


def _installed(library: str) -> bool:
    try:
        return importlib.util.find_spec(library) is not None
    except ImportError:  # a parent package is not there
        return False
