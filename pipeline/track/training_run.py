"""Log a head's training as a run in MLflow; a lost server costs a warning, not the training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.track import Tracker, TrackerAway, answering


@dataclass
class MlflowRun:
    """One training run in MLflow. Its files are on disk too: losing the server is a warning.

    Attributes:
        uri: Tracking URI; None is a SQLite store in the folder of runs.
        experiment: MLflow's experiment.
        runs: The folder of runs.
    """

    uri: str | None
    experiment: str
    runs: str
    _tracker: Tracker | None = field(default=None, init=False)
    _run_id: str = field(default="", init=False)

    def begin(self, name: str, params: Mapping[str, str]) -> None:
        """Make the run, or go on with the one of this name."""
        runs = Path(self.runs).expanduser().absolute()
        runs.mkdir(parents=True, exist_ok=True)
        uri = self.uri or f"sqlite:///{runs / 'mlflow.db'}"
        tracker = self._tracker = Tracker.open(uri, self.experiment, runs)

        def send() -> None:
            query = f"tags.training = '{name}'"
            found = tracker.client.search_runs([tracker.experiment_id], query, max_results=1)
            if found:
                self._run_id = found[0].info.run_id
                return
            tags = {"kind": "training", "training": name}
            run = tracker.client.create_run(tracker.experiment_id, tags=tags, run_name=name)
            self._run_id = run.info.run_id
            for key, value in params.items():
                tracker.client.log_param(self._run_id, key, value)

        self._send(send)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Log values at a step."""

        def send() -> None:
            for key, value in values.items():
                self._opened.client.log_metric(self._run_id, key, value, step=step)

        self._send(send)

    def end(self, folder: Path) -> None:
        """Send a head's folder and close the run."""

        def send() -> None:
            self._opened.client.log_artifacts(self._run_id, str(folder), "head")
            self._opened.client.set_terminated(self._run_id)

        self._send(send)

    @property
    def _opened(self) -> Tracker:
        assert self._tracker is not None, "begin comes first"
        return self._tracker

    def _send(self, send: Callable[[], None]) -> None:
        """Send, and stop sending where the server is away."""
        if self._tracker is None:
            return
        try:
            with answering():
                send()
        except TrackerAway as reason:
            self._tracker = None
            sys.stderr.write(
                f"MLflow is away ({reason}); training goes on, its files are on disk\n"
            )
