"""What a sweep is doing, on one line of a terminal or as plain lines in a log."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import TextIO

from pipeline.measure import measure
from pipeline.measure.statistics import noise
from pipeline.record.record import CellRecord, Status

PLAIN_EVERY_S = 10.0  # without a terminal a status line is only worth printing now and then


@dataclass
class Progress:
    """Says what is done, what runs, how long it may take and the last cell's numbers.

    Attributes:
        num_cells: Cells that this run has to measure.
        expected_repetitions: Repetitions of a cell, as far as is known before one has ended.
        names: A name for each cell id that tells equal labels apart; else the label is shown.
    """

    num_cells: int
    expected_repetitions: int
    stream: TextIO
    names: Mapping[str, str] = field(default_factory=dict)
    _done: int = 0
    _shown: float = 0.0
    _last: str = ""
    _repetition_s: dict[str, list[float]] = field(default_factory=dict)
    _ended_after: list[int] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        clear = "\r\x1b[K" if self.stream.isatty() else ""
        self.stream.write(f"{clear}{text}\n")
        self.stream.flush()

    def name(self, record: CellRecord) -> str:
        """Return what the cell is called in this sweep."""
        return self.names.get(record.cell_id, record.label)

    def repeating(self, record: CellRecord) -> None:
        """Show which cell is being measured."""
        self._repetition_s.setdefault(record.cell_id, [])
        self.doing(f"measuring {self.name(record)}, repetition {len(record.repetitions) + 1}")

    def repeated(self, record: CellRecord, seconds: float) -> None:
        """Take note of a repetition's time and numbers."""
        self._repetition_s[record.cell_id].append(seconds)
        self._last = f"{self.name(record)}: {numbers(record)}"

    def left(self, record: CellRecord) -> None:
        """Forget a cell's times: it is not measured on, ended or not."""
        self._repetition_s.pop(record.cell_id, None)

    def ended(self, record: CellRecord) -> None:
        """Print how a cell ended."""
        self._done += 1
        times = self._repetition_s.pop(record.cell_id, [])
        if times:
            self._ended_after.append(len(times))
        place = f"[{self._done}/{self.num_cells}] {self.name(record)}"
        if record.status is Status.OK:
            self.say(f"{place}: {numbers(record)}; {record.stop_rule}")
        else:
            self.say(f"{place}: {record.status}: {record.reason}")

    def doing(self, what: str) -> None:
        """Show in the changing line what is done now: rewritten on a terminal, rare elsewhere."""
        parts = [f"{self._done} of {self.num_cells} done", what, self._remaining(), self._last]
        text = " · ".join(part for part in parts if part)
        if self.stream.isatty():
            width = shutil.get_terminal_size().columns - 1  # a wrapped line cannot be rewritten
            self.stream.write(f"\r\x1b[K{text[:width]}")
            self.stream.flush()
        elif time.monotonic() - self._shown > PLAIN_EVERY_S:
            self._shown = time.monotonic()
            self.say(text)

    def _remaining(self) -> str:
        """Estimate the time left from the repetitions so far."""
        known = [fmean(times) for times in self._repetition_s.values() if times]
        if not known:
            return ""
        most = fmean(self._ended_after) if self._ended_after else self.expected_repetitions
        running = [max(1.0, most - len(times)) for times in self._repetition_s.values()]
        to_come = max(0, self.num_cells - self._done - len(running)) * most
        return f"about {_minutes((sum(running) + to_come) * fmean(known))} left"


def numbers(record: CellRecord) -> str:
    """Return a cell's tok/s with its noise, and its accept length."""
    try:
        figures = measure(record, None).overall
    except ValueError:  # every response ended at its first token
        return "no verify step yet"
    spread = f" {noise(record.repetitions)}" if len(record.repetitions) > 2 else ""
    return (
        f"{figures.tok_s.value:.1f} tok/s{spread}, accept length {figures.accept_length.value:.2f}"
    )


def _minutes(seconds: float) -> str:
    """Return a duration as people say it."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
