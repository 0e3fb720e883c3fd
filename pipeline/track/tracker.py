"""Send a sweep to one MLflow experiment, cell by cell while it runs or whole from disk.

A `Tracker` makes the parent run and its children and sends what they lack, so that sending twice
changes nothing. `sync` does so for a sweep on disk that the server missed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.config.messages import masked
from pipeline.judge.comparison import compare
from pipeline.record.record import CellRecord, Status
from pipeline.record.sweep_folder import SweepFolder
from pipeline.track.client import TrackerAway, answering, connect
from pipeline.track.metrics import (
    metrics,
    own_metrics,
    repetition_metrics,
    status_tags,
    sweep_summary,
)
from pipeline.track.places import (
    ARTIFACTS,
    check_experiment,
    check_store,
    check_writable,
    is_sqlite,
    store_folder,
)
from pipeline.track.stored import page

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run


Item = TypeVar("Item")
BATCH = 100  # parameters and tags that MLflow takes at once
DIGEST_CHARACTERS = 36  # MLflow's limit for a data set's


@dataclass(frozen=True)
class Tracker:
    """An opened MLflow experiment.

    Attributes:
        location: Where its artifacts go.
        uri: The tracking URI.
    """

    client: MlflowClient
    experiment_id: str
    location: str = ""
    uri: str = ""

    @classmethod
    def open(cls, uri: str, experiment: str, runs: Path) -> Tracker:
        """Open the store, made on first use, and the experiment.

        Raises:
            ValueError: It cannot be opened, or the experiment is deleted or was moved.
        """
        try:
            with answering():
                client = connect(uri)
                found = client.get_experiment_by_name(experiment)
                if found is None:
                    place = (runs / ARTIFACTS).as_uri() if is_sqlite(uri) else None
                    made = client.create_experiment(experiment, artifact_location=place)
                    found = client.get_experiment(made)
                if not found.experiment_id:
                    raise TrackerAway("it answers, but not as MLflow")
                used = _is_used(client, found)
        except TrackerAway as reason:
            raise ValueError(
                f"tracking.uri={masked(uri)}: cannot be opened ({reason}); {_way_out(str(reason))}"
            ) from None
        check_experiment(found, uri, runs, used)
        return cls(client, found.experiment_id, found.artifact_location or "", uri)

    @property
    def page(self) -> str:
        """The experiment's runs, behind the dashboard's address."""
        return page(self.experiment_id)

    def begin(self, sweep: SweepFolder) -> str:
        """Return the run id of the sweep's parent run, made if it is not there.

        Raises:
            TrackerAway: As everything here that sends.
        """
        with answering():
            check_writable(self.location, self.uri)
            run = self._find(f"tags.sweep_id = '{sweep.sweep_id}' and tags.kind = 'sweep'")
            if run is None:
                tags = {"sweep_id": sweep.sweep_id, "kind": "sweep"}
                run = self.client.create_run(self.experiment_id, tags=tags, run_name=sweep.sweep_id)
                self._params(run, sweep.facts["provenance"] | sweep.facts["settings"])
            return str(run.info.run_id)

    def send_cell(self, sweep: SweepFolder, record: CellRecord) -> None:
        """Log one ended cell: settings, status, figures by repetition, responses, proof, log."""
        digest = _digest(sweep.cell(record.cell_id))
        with answering():
            run = self._child(sweep, record)
            if run.data.tags.get("digest") == digest:
                return
            self._tags(run, status_tags(record) | {"command": record.command})
            # The first metric logged is the one that MLflow's compare page opens with: tok/s.
            self._metrics(run, own_metrics(record))
            self._repetitions(run, record)
            self._artifacts(run, record, sweep.cell(record.cell_id))
            end = "FAILED" if record.status is Status.FAILED else "FINISHED"
            self.client.set_terminated(run.info.run_id, end)
            self._tags(run, {"digest": digest})  # last: it says that all the rest is there

    def finish(self, sweep: SweepFolder, end: str) -> None:
        """Send what is missing, the figures that need all cells, and the sweep's own artifacts.

        Args:
            sweep: A sweep on disk.
            end: MLflow's word for how it ended: `FINISHED`, `FAILED` or `KILLED`.

        Raises:
            Damaged: A cell's file cannot be read; nothing is sent.
        """
        records = [r for r in sweep.records() if r.status is not Status.UNFINISHED]
        parent = self.begin(sweep)
        for record in records:
            self.send_cell(sweep, record)
        comparisons = compare(records)
        with answering():
            for comparison in comparisons:
                for record in comparison.records:
                    run = self._child(sweep, record)
                    self._tags(run, status_tags(record))
                    if record.cell_id in comparison.measurements:
                        self._metrics(run, metrics(comparison.measurements[record.cell_id]))
            tags, values = sweep_summary(comparisons, sweep.facts.get("verdict", ()))
            self._tags(self.client.get_run(parent), tags)
            self._metrics(self.client.get_run(parent), values)
            for path in sorted(p for p in sweep.path.iterdir() if p.is_file()):
                self.client.log_artifact(parent, str(path))
            self.client.set_terminated(parent, end)

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
            start_time=_milliseconds(time.time() - sum(record.seconds.values())),
            tags={
                "mlflow.parentRunId": self.begin(sweep),
                "kind": "cell",
                "sweep_id": sweep.sweep_id,
                "cell_id": record.cell_id,
                "position": str(sweep.facts["cell_ids"].index(record.cell_id)),
                "comparison": record.comparison,
                "baseline": str(record.is_baseline).lower(),
            },
            run_name=record.label,
        )
        self._params(run, record.params)
        self._dataset(run, record)
        return run

    def _params(self, run: Run, values: Mapping[str, Any]) -> None:
        """Log parameters; MLflow refuses empty ones."""
        from mlflow.entities import Param

        for some in _batches([Param(k, str(v)) for k, v in values.items() if str(v)]):
            self.client.log_batch(run.info.run_id, params=some)

    def _tags(self, run: Run, values: Mapping[str, str]) -> None:
        """Set tags."""
        from mlflow.entities import RunTag

        self.client.log_batch(run.info.run_id, tags=[RunTag(k, v) for k, v in values.items()])

    def _metrics(self, run: Run, values: Mapping[str, float]) -> None:
        """Log the metrics that the run does not have yet."""
        from mlflow.entities import Metric

        have, now = run.data.metrics, _milliseconds(time.time())
        new = [Metric(k, v, now, 0) for k, v in values.items() if have.get(k) != v]
        for some in _batches(new):
            self.client.log_batch(run.info.run_id, metrics=some)

    def _repetitions(self, run: Run, record: CellRecord) -> None:
        """Log each repetition's own figures as a step, and the seconds by phase."""
        from mlflow.entities import Metric

        now = _milliseconds(time.time())
        found = [Metric(f"seconds_{k}", v, now, 0) for k, v in record.seconds.items()]
        found += [Metric(name, v, now, step) for step, name, v in repetition_metrics(record)]
        for some in _batches(found):
            self.client.log_batch(run.info.run_id, metrics=some)

    def _dataset(self, run: Run, record: CellRecord) -> None:
        """Name the workload as the run's data set."""
        from mlflow.entities import Dataset, DatasetInput

        settings = {k: v for k, v in record.params.items() if k.startswith("workload.")}
        data = Dataset(
            name=record.params["workload"],
            digest=record.params["prompts_digest"][:DIGEST_CHARACTERS],
            source_type="specroi",
            source=json.dumps(settings),
        )
        self.client.log_inputs(run.info.run_id, [DatasetInput(data)])

    def _artifacts(self, run: Run, record: CellRecord, folder: Path) -> None:
        """Send the cell's folder, its proof and the commands that reproduce and deploy it."""
        run_id = run.info.run_id
        self.client.log_artifacts(run_id, str(folder))
        self.client.log_text(run_id, record.command + "\n", "command.txt")
        if "deploy" in record.settings:
            self.client.log_text(run_id, record.deploy + "\n", "deploy.txt")
        if record.proof is not None:
            self.client.log_dict(run_id, asdict(record.proof), "proof.json")


def _is_used(client: MlflowClient, experiment: Experiment) -> bool:
    """Return whether an experiment has runs."""
    return bool(client.search_runs([experiment.experiment_id], max_results=1))


def _way_out(reason: str) -> str:
    """Say what can be done about a store that cannot be opened."""
    if "schema" in reason or "revision" in reason:
        return (
            "another version of MLflow made that store: use that version, migrate a copy with"
            " `mlflow db upgrade`, or name another store with tracking.uri"
        )
    if "locked" in reason:
        return "another program is writing to it: end that, or name another store"
    return "start that server, or leave the setting out for a store in the folder of runs"


def _milliseconds(seconds: float) -> int:
    """Return a time as MLflow wants it."""
    return int(1000 * seconds)


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


def sync(folder: Path, uri: str | None = None) -> str:
    """Send what a sweep on disk has and MLflow has not; return the tracking URI.

    Args:
        folder: The sweep's folder.
        uri: Where to; None is where the sweep was tracked.

    Raises:
        ValueError: It is not a sweep's folder, or the store cannot be opened.
        TrackerAway: The server went away.
    """
    sweep = SweepFolder(folder.absolute())
    if not (folder / "sweep.json").is_file():
        raise ValueError(f"{folder}: no sweep.json there; name a folder under runs/sweeps")
    where = sweep.facts.get("tracking")
    if where is None:
        raise ValueError(f"{folder / 'sweep.json'}: tracking is missing; the sweep was not tracked")
    to = uri or where["uri"]
    if uri is None:
        check_store(to)
    runs = Path(where["runs"]) if uri is None else store_folder(to)
    tracker = Tracker.open(to, where["experiment"], runs)
    tracker.finish(sweep, sweep.facts.get("ended", "KILLED"))
    return masked(to)
