"""A sweep on disk sent to MLflow, as far as it is not there."""

from __future__ import annotations

from pathlib import Path

from pipeline.machine.provenance import masked
from pipeline.record.sweep_folder import SweepFolder
from pipeline.track.tracker import Tracker


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
    where = sweep.facts["tracking"]
    to = uri or where["uri"]
    tracker = Tracker.open(to, where["experiment"], Path(where["runs"]))
    tracker.finish(sweep, sweep.facts.get("ended", "KILLED"))
    return masked(to)
