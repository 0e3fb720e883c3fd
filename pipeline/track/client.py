"""MLflow's client: imported when it is used, quiet, and its errors as one of ours."""

from __future__ import annotations

import contextlib
import logging
import os
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.config.messages import first_line, masked

if TYPE_CHECKING:
    from mlflow import MlflowClient


LINE_CHARACTERS = 160
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # results are on disk: better a warning than a wait
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GIT_PYTHON_REFRESH": "quiet",
}


class TrackerAway(Exception):
    """The tracking server did not do what it was asked to; the text says why, in one line."""


def connect(uri: str) -> MlflowClient:
    """Connect; a SQLite store is made on first use."""
    from mlflow import MlflowClient

    return MlflowClient(uri)


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Import MLflow, which takes seconds, and turn its errors into one of ours.

    Whatever goes wrong in here goes wrong in MLflow, its store, or a library that one of them
    needs; each has errors of its own, and none of them is worth a measurement.

    Raises:
        TrackerAway: Something did, in one line.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    for name in ("mlflow.store.db.utils", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # they also print what they raise
    try:
        yield
    except TrackerAway:
        raise
    except Exception as error:  # noqa: BLE001 - object stores and drivers have errors of their own
        raise TrackerAway(_line(error)) from None


def _line(error: BaseException) -> str:
    """Return an error's first line, without a password and not endless.

    With its type where it is none of MLflow's, whose texts stand by themselves.
    """
    text = first_line(error)
    own = type(error).__module__.startswith(("mlflow", "sqlalchemy")) or isinstance(error, OSError)
    if not own and type(error).__name__ not in text:
        text = f"{type(error).__name__}: {text}"
    return textwrap.shorten(masked(text), LINE_CHARACTERS, placeholder=" …")


PORT = 5000  # MLflow's own choice
