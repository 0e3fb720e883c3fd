"""Sends results as they come, as long as there is someone to take them."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipeline.config.messages import one_line
from pipeline.record.record import CellRecord
from pipeline.record.sweep_folder import SweepFolder
from pipeline.track import Tracker, TrackerAway


@dataclass
class Sender:
    """Sends to the tracker; all results are on disk first, so that its loss is only a warning.

    Attributes:
        seconds: Time spent here.
        away: The tracker did not answer; nothing more is sent.
    """

    tracker: Tracker
    sweep: SweepFolder
    warn: Callable[[str], None]
    seconds: float = 0.0
    away: bool = False

    def begin(self) -> None:
        """Make the sweep's own run."""
        with self._sending():
            self.tracker.begin(self.sweep)

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
        """Turn the loss of the tracker into one warning."""
        begun = time.perf_counter()
        try:
            yield
        except Exception as error:  # noqa: BLE001 - what is measured is on disk, whatever this is
            reason = error if isinstance(error, TrackerAway) else one_line(error)
            self.away = True
            folder = self.sweep.path
            self.warn(
                f"MLflow is away ({reason}); results are in {folder}, send them later with"
                f" `python -m pipeline.track sync {shlex.quote(str(folder))}`"
            )
        self.seconds += time.perf_counter() - begun
