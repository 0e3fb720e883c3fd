"""`python -m pipeline.track sync` and `python -m pipeline.track pages`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.config.messages import folded, guarded
from pipeline.track.client import PORT, TrackerAway
from pipeline.track.stored import pages
from pipeline.track.tracker import sync

STORE = "sqlite:///runs/mlflow.db"


def main(arguments: Sequence[str] | None = None) -> int:
    """Send to MLflow what it missed, or say where to look at its runs; 2 if it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.track", description=main.__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    sent = actions.add_parser("sync", help="send what sweeps on disk have and MLflow has not")
    sent.add_argument("folders", nargs="*", type=Path, help="default: all in runs/sweeps")
    sent.add_argument("--uri", help="default: where the sweep was tracked")
    shown = actions.add_parser("pages", help="print the addresses of all lists of runs")
    shown.add_argument("--uri", default=STORE, help=f"default: {STORE}")
    shown.add_argument("--port", type=int, default=PORT, help="where its dashboard is served")
    given = parser.parse_args(arguments)
    try:
        for line in _sync(given) if given.action == "sync" else _pages(given):
            sys.stdout.write(f"{line}\n")
    except (ValueError, TrackerAway) as error:
        sys.stderr.write(f"{folded(error)}\n")
        return 2
    return 0


def _sync(given: argparse.Namespace) -> Iterator[str]:
    """Send sweep by sweep; yield where each one is."""
    for folder in given.folders or sorted(Path("runs/sweeps").glob("*")):
        yield f"{folder.name}: in {sync(folder, given.uri)}"


def _pages(given: argparse.Namespace) -> Iterator[str]:
    """Yield the address of each experiment's runs."""
    found = pages(given.uri)
    for name, page in found.items():
        yield f"{name}: http://127.0.0.1:{given.port}{page}"
    if not found:
        yield f"nothing is measured yet: http://127.0.0.1:{given.port}"


if __name__ == "__main__":
    sys.exit(guarded("python -m pipeline.track", main))
