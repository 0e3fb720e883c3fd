"""What a head's training gets from the pipeline: a run in MLflow, and its accept length."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from drafters.eagle3.drafter import Eagle3
from pipeline.cell.cell import Cell, Parallelism
from pipeline.cell.response import Engine, Sampling
from pipeline.measure import measure, metrics
from pipeline.sweep.planned import Planned
from pipeline.target.target import Target
from pipeline.track import Tracker, TrackerAway, answering
from pipeline.workload.prompts import prompts_digest
from pipeline.workload.sources import Workload
from verify.base import VerifyBackend


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


@dataclass(frozen=True)
class HeldOut:
    """Measures the accept length of a head as a cell would, on prompts that no head is trained on.

    Attributes:
        target: Whose head it is.
        workload: The prompts.
        engine: What runs them.
        verify: How the verify step runs.
        sampling: How answers are sampled.
        num_draft_tokens: Length of the chain.
    """

    target: Target
    workload: Workload
    engine: Engine
    verify: VerifyBackend
    sampling: Sampling
    num_draft_tokens: int

    def __call__(self, folder: Path, cache: Path) -> dict[str, float]:
        """Return a cell's metrics of the head in `folder`, by the names that sweeps log."""
        prompts = list(self.workload.load(self.target, cache))
        cell = Cell(
            target=self.target,
            drafter=Eagle3(
                name="trained",
                target=self.target.name,
                heads={self.target.name: str(folder)},
                num_draft_tokens=self.num_draft_tokens,
            ),
            verify=self.verify,
            engine=self.engine,
            workload=self.workload,
            sampling=self.sampling,
            parallelism=Parallelism(),
            prompts_digest=prompts_digest(prompts),
        )
        cell.engine.check(cell)
        session = cell.engine.start(cell)
        session.warm_up(prompts)
        responses = tuple(session.generate(prompt, 0) for prompt in prompts)
        session.close()
        record = Planned(cell, tuple(prompts), command="").record
        return metrics(measure(replace(record, repetitions=(responses,)), None))
