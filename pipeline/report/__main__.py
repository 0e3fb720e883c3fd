"""Write a sweep's report again, from its folder or from MLflow: no engine is needed.

`python -m pipeline.report sweep=FOLDER`, or `sweep=ID [runs=FOLDER] [tracking.uri=URI]`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.config.messages import folded, guarded, masked
from pipeline.record.record import Loaded
from pipeline.record.sweep_folder import SweepFolder
from pipeline.report import terminal_table, write_report
from pipeline.track import TrackerAway, load

KEYS = ("sweep", "runs", "tracking.uri")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report, print the table and the report's path; 2 if there is nothing to report."""
    try:
        given = _parse(sys.argv[1:] if arguments is None else arguments)
        (records, damaged), folder, provenance = _read(given)
        if damaged and not records:
            raise ValueError("\n".join(damaged))
        path = write_report(records, folder, provenance, damaged)
    except (ValueError, TrackerAway) as error:
        sys.stderr.write(f"{folded(error)}\n")
        return 2
    sys.stderr.write("".join(f"left out: {folded(line)}\n" for line in damaged))
    sys.stdout.write(f"{terminal_table(records)}\n\nreport: {path}\n")
    return 0


def _parse(arguments: Sequence[str]) -> dict[str, str]:
    """Return settings by name.

    Raises:
        ValueError: One is unknown, or the sweep is missing.
    """
    given = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key not in KEYS or not equals:
            raise ValueError(f"{argument}: give {', '.join(f'{k}=…' for k in KEYS)}")
        given[key] = value
    if "sweep" not in given:
        raise ValueError("sweep is missing: give sweep=FOLDER, or sweep=ID as MLflow names it")
    return given


def _read(given: Mapping[str, str]) -> tuple[Loaded, Path, dict[str, str]]:
    """Return the cells, the folder for the report, and the provenance.

    A folder on this disk is read as it is; otherwise the tracking server has the same data.

    Raises:
        ValueError: Neither has the sweep, or `sweep.json` is damaged.
        TrackerAway: The tracking server does not answer.
    """
    runs = Path(given.get("runs", "runs"))
    for path in (Path(given["sweep"]), runs / "sweeps" / given["sweep"]):
        if (path / "sweep.json").exists():
            folder = SweepFolder(path.absolute())
            return folder.read(), path, folder.facts["provenance"]
    uri = given.get("tracking.uri", f"sqlite:///{runs.absolute() / 'mlflow.db'}")
    if uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists():
        raise ValueError(f"sweep={given['sweep']}: no such folder, and there is no store at {uri}")
    return load(uri, given["sweep"]), runs / "reports" / given["sweep"], {"read from": masked(uri)}


if __name__ == "__main__":
    sys.exit(guarded("python -m pipeline.report", main))
