"""What MLflow has: a sweep's cells, and the pages of all runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pipeline.config.messages import masked
from pipeline.record.record import Loaded, load_records
from pipeline.track.client import answering, connect


def load(uri: str, sweep_id: str) -> Loaded:
    """Read a sweep's cells back, in the order of the grid; MLflow alone is needed.

    A cell whose files did not arrive whole is named by its run, as damaged.

    Raises:
        ValueError: There is no such sweep.
        TrackerAway: The server does not answer.
    """
    with answering(), tempfile.TemporaryDirectory() as place:
        client = connect(uri)
        experiments = [e.experiment_id for e in client.search_experiments()]
        query = f"tags.sweep_id = '{sweep_id}' and tags.kind = 'cell'"
        runs = client.search_runs(experiments, query)
        folders = []
        for run in sorted(runs, key=lambda run: int(run.data.tags["position"])):
            folders.append(Path(place) / run.info.run_id)
            folders[-1].mkdir()
            client.download_artifacts(run.info.run_id, "", str(folders[-1]))
        if folders:
            found = load_records(folders, "send it again with `python -m pipeline.track sync`")
            return found._replace(damaged=[d.replace(f"{place}/", "run ") for d in found.damaged])
    raise ValueError(f"sweep={sweep_id}: tracking.uri={masked(uri)} has no such sweep")


def pages(uri: str) -> dict[str, str]:
    """Return the page of every experiment that has runs, by its name; the newest run's first.

    Raises:
        TrackerAway: The server does not answer.
    """
    with answering():
        client, found = connect(uri), []
        for experiment in client.search_experiments():
            id_, newest = experiment.experiment_id, ["attributes.start_time DESC"]
            for run in client.search_runs([id_], max_results=1, order_by=newest):
                found.append((run.info.start_time, experiment.name, page(id_)))
    return {name: where for _, name, where in sorted(found, reverse=True)}


def page(experiment_id: str) -> str:
    """Return where an experiment's runs are, behind the dashboard's address.

    The address alone opens on a page for traces of chat models, which shows none of them.
    """
    return f"/#/experiments/{experiment_id}/runs?workflowType=machine_learning"
