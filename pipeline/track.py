"""MLflow: a parent run per sweep, a child run per cell, and the way back.

The only module that imports MLflow, and only the driver does so. Everything here can be repeated:
what is already there is found by its tags and only what differs is sent, so that logging a cell
as it ends, finishing a sweep and `python -m pipeline.track sync` are one code path.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pipeline.judge import compare
from pipeline.measure import measure, metrics
from pipeline.record import CellRecord, Status, load_record
from pipeline.store import SweepFolder

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

Item = TypeVar("Item")
PARENT = "mlflow.parentRunId"
ENDS = {Status.FAILED: "FAILED"}  # MLflow's own run status; our status is a tag
BATCH = 100  # parameters and tags that MLflow takes at once
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # results are on disk: better a warning than a wait
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "GIT_PYTHON_REFRESH": "quiet",
}


def tracking_uri(uri: str | None, runs: Path) -> str:
    """Return the tracking URI: the setting, else a SQLite store in the folder of runs."""
    return uri or f"sqlite:///{runs.expanduser().absolute() / 'mlflow.db'}"


@dataclass(frozen=True)
class Tracker:
    """An opened MLflow experiment."""

    client: MlflowClient
    experiment_id: str

    @classmethod
    def open(cls, uri: str, experiment: str, runs: Path) -> Tracker:
        """Open the store, made on first use, and the experiment.

        Raises:
            ValueError: It cannot be opened.
        """
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient  # seconds; the driver does it while Ray starts
        from mlflow.exceptions import MlflowException

        try:
            client = MlflowClient(uri)
            found = client.get_experiment_by_name(experiment)
            if found is not None:
                return cls(client, found.experiment_id)
            artifacts = runs.expanduser().absolute() / "mlartifacts"
            place = artifacts.as_uri() if uri.startswith("sqlite:") else None
            return cls(client, client.create_experiment(experiment, artifact_location=place))
        except (MlflowException, OSError) as error:
            raise ValueError(
                f"tracking.uri={uri}: cannot be opened ({_line(error)}); start that server, or"
                " leave the setting out for a store in the folder of runs"
            ) from None

    def parent(self, sweep: SweepFolder) -> str:
        """Return the run id of the sweep's parent run, made if it is not there."""
        found = self._find(f"tags.sweep_id = '{sweep.sweep_id}' and tags.kind = 'sweep'")
        if found is not None:
            return str(found.info.run_id)
        tags = {"sweep_id": sweep.sweep_id, "kind": "sweep"}
        run = self.client.create_run(self.experiment_id, tags=tags, run_name=sweep.sweep_id)
        self._params(run.info.run_id, {**sweep.facts["provenance"], **sweep.facts["settings"]})
        return str(run.info.run_id)

    def send_cell(self, sweep: SweepFolder, record: CellRecord) -> None:
        """Log one ended cell: settings, status, figures by themselves, responses, log."""
        run = self._child(sweep, record)
        run_id = run.info.run_id
        digest = _digest(sweep.cell(record.cell_id))
        if run.data.tags.get("digest") == digest:
            return
        self._tags(run_id, status_tags(record) | {"command": record.command})
        if record.repetitions:
            self._repetitions(run_id, record)
        self._artifacts(run_id, sweep.cell(record.cell_id), record)
        self.client.set_terminated(run_id, ENDS.get(record.status, "FINISHED"))
        self._tags(run_id, {"digest": digest})

    def finish(self, sweep: SweepFolder, status: str) -> None:
        """Send what is missing, the figures that need all cells, and the sweep's own artifacts.

        Args:
            sweep: A sweep on disk.
            status: MLflow's word for how it ended: `FINISHED`, `FAILED` or `KILLED`.
        """
        parent = self.parent(sweep)
        self.client.update_run(parent, status="RUNNING")
        records = [r for r in sweep.records() if r.status is not Status.UNFINISHED]
        for record in records:
            self.send_cell(sweep, record)
        for comparison in compare(records):
            for record in comparison.records:
                run = self._child(sweep, record)
                self._tags(run.info.run_id, status_tags(record))
                if record.cell_id in comparison.measurements:
                    self._metrics(run, metrics(comparison.measurements[record.cell_id]))
        for path in sorted(p for p in sweep.path.iterdir() if p.name != "cells"):
            send = self.client.log_artifacts if path.is_dir() else self.client.log_artifact
            send(parent, str(path), *([path.name] if path.is_dir() else []))
        self.client.set_terminated(parent, status)

    def _find(self, query: str) -> Run | None:
        """Return the first run that a query finds."""
        found = self.client.search_runs([self.experiment_id], query, max_results=1)
        return found[0] if found else None

    def _child(self, sweep: SweepFolder, record: CellRecord) -> Run:
        """Return a cell's run, made if it is not there."""
        query = f"tags.sweep_id = '{sweep.sweep_id}' and tags.cell_id = '{record.cell_id}'"
        found = self._find(query)
        if found is not None:
            return found
        run = self.client.create_run(
            self.experiment_id,
            start_time=int(1000 * (time.time() - sum(record.seconds.values()))),
            tags={
                PARENT: self.parent(sweep),
                "sweep_id": sweep.sweep_id,
                "cell_id": record.cell_id,
                "kind": "cell",
                "comparison": record.comparison,
                "baseline": str(record.is_baseline).lower(),
            },
            run_name=record.label,
        )
        self._params(run.info.run_id, record.params)
        self._dataset(run.info.run_id, record)
        return run

    def _params(self, run_id: str, values: Mapping[str, str]) -> None:
        """Log parameters."""
        from mlflow.entities import Param

        for some in _batches([Param(k, str(v)) for k, v in values.items() if str(v)]):
            self.client.log_batch(run_id, params=some)

    def _tags(self, run_id: str, values: Mapping[str, str]) -> None:
        """Set tags."""
        from mlflow.entities import RunTag

        self.client.log_batch(run_id, tags=[RunTag(k, v) for k, v in values.items()])

    def _metrics(self, run: Run, values: Mapping[str, float]) -> None:
        """Log the metrics that the run does not have yet."""
        from mlflow.entities import Metric

        have, now = run.data.metrics, int(1000 * time.time())
        new = [Metric(k, v, now, 0) for k, v in values.items() if have.get(k) != v]
        for some in _batches(new):
            self.client.log_batch(run.info.run_id, metrics=some)

    def _repetitions(self, run_id: str, record: CellRecord) -> None:
        """Log each repetition's own figures as a step, and the phases' seconds."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        found = [Metric(f"seconds_{k}", v, now, 0) for k, v in record.seconds.items()]
        for step, name, value in _by_repetition(record):
            found.append(Metric(name, value, now, step))
        for some in _batches(found):
            self.client.log_batch(run_id, metrics=some)

    def _dataset(self, run_id: str, record: CellRecord) -> None:
        """Name the workload as the run's data set."""
        from mlflow.entities import Dataset, DatasetInput

        settings = {k: v for k, v in record.params.items() if k.startswith("workload.")}
        data = Dataset(
            name=record.params["workload"],
            digest=record.params["prompts_digest"][:36],  # MLflow's limit
            source_type="specroi",
            source=json.dumps(settings),
        )
        self.client.log_inputs(run_id, [DatasetInput(data)])

    def _artifacts(self, run_id: str, folder: Path, record: CellRecord) -> None:
        """Send the cell's folder, its proof and the command that reproduces it."""
        self.client.log_artifacts(run_id, str(folder))
        self.client.log_text(run_id, record.command + "\n", "command.txt")
        if record.proof is not None:
            self.client.log_dict(run_id, asdict(record.proof), "proof.json")


@dataclass
class Sender:
    """Sends as long as the tracking server answers; results are on disk, so its loss is a warning.

    Attributes:
        seconds: Time spent here.
        away: The server did not answer; nothing more is sent.
    """

    tracker: Tracker
    sweep: SweepFolder
    warn: Callable[[str], None]
    seconds: float = 0.0
    away: bool = False

    def cell(self, record: CellRecord) -> None:
        """Send an ended cell."""
        if not self.away:
            with self._sending():
                self.tracker.send_cell(self.sweep, record)

    def finish(self, status: str) -> None:
        """Send the sweep's end, and what is missing of its cells."""
        if not self.away:
            with self._sending():
                self.tracker.finish(self.sweep, status)

    @contextlib.contextmanager
    def _sending(self) -> Iterator[None]:
        """Turn the loss of the server into one warning."""
        from mlflow.exceptions import MlflowException

        begun = time.perf_counter()
        try:
            yield
        except (MlflowException, OSError) as error:
            self.away = True
            self.warn(
                f"MLflow is away ({_line(error)}); results are in {self.sweep.path}, send them with"
                f" `python -m pipeline.track sync {self.sweep.path}`"
            )
        self.seconds += time.perf_counter() - begun


def status_tags(record: CellRecord) -> dict[str, str]:
    """Return how a cell ended, as tags."""
    return {"status": record.status, "reason": record.reason, "stop_rule": record.stop_rule}


def load(uri: str, sweep_id: str) -> list[CellRecord]:
    """Read a sweep's cells back from MLflow; neither the engine nor the sweep's folder is needed.

    Raises:
        ValueError: There is no such sweep.
    """
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiments = [e.experiment_id for e in client.search_experiments()]
    query = f"tags.sweep_id = '{sweep_id}' and tags.kind = 'cell'"
    runs = client.search_runs(experiments, query, order_by=["attributes.start_time ASC"])
    if not runs:
        raise ValueError(f"sweep={sweep_id}: tracking.uri={uri} has no such sweep")
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / run.info.run_id for run in runs]
        for run, folder in zip(runs, folders, strict=True):
            folder.mkdir()
            client.download_artifacts(run.info.run_id, "", str(folder))
        return [load_record(folder) for folder in folders]


def _by_repetition(record: CellRecord) -> Iterator[tuple[int, str, float]]:
    """Yield step, name and value of each repetition's figures."""
    from dataclasses import replace

    for step, responses in enumerate(record.repetitions):
        alone = replace(record, repetitions=(responses,))
        try:
            figures = metrics(measure(alone, None))
        except ValueError:  # every response ended at its first token
            continue
        for name in ("tok_s", "accept_length", "step_ms"):
            yield step, f"repetition_{name}", figures[name]


def _batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Cut into as many as MLflow takes at once."""
    for start in range(0, len(items), BATCH):
        yield list(items[start : start + BATCH])


def _digest(folder: Path) -> str:
    """Hash a cell's folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _line(error: BaseException) -> str:
    """Return an error's first line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `sync [FOLDER ...]`: send to MLflow what sweeps on disk have and it has not."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m pipeline.track", description=main.__doc__)
    parser.add_argument("action", choices=["sync"])
    parser.add_argument(
        "folders", nargs="*", type=Path, help="sweep folders; all under runs/ when none"
    )
    given = parser.parse_args(arguments)
    folders = given.folders or sorted(Path("runs/sweeps").glob("*"))
    for folder in folders:
        sweep = SweepFolder(folder.absolute())
        where = sweep.facts["tracking"]
        tracker = Tracker.open(where["uri"], where["experiment"], Path(where["runs"]))
        tracker.finish(sweep, sweep.facts.get("ended", "KILLED"))
        sys.stdout.write(f"{sweep.sweep_id}: in {where['uri']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
