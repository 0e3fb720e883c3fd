"""What our plugin wrote: the steps of a server since the last flush, as typed values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.sglang_plugin import RECORDS


@dataclass(frozen=True)
class StepRecord:
    """One step of the scheduler; with several requests in flight they share it.

    Attributes:
        mode: `target_verify` or `decode`.
        batch: Requests in the step.
        graph: Whether the target's forward was replayed from a graph.
        verify_ms: Device time of the target's forward.
        draft_ms: Device time of the drafter, reading what was accepted included; n-gram look-up.
        at_s: When the scheduler had the result, on a clock of its own.
        committed: Tokens that each request got, by request id; draft tokens past a stop included.
    """

    mode: str
    batch: int
    graph: bool
    verify_ms: float
    draft_ms: float
    at_s: float
    committed: dict[str, int]


@dataclass(frozen=True)
class Records:
    """The steps between two flushes.

    Attributes:
        flush: Count of flushes of this server.
        lost: Steps whose result never came back.
        first_s: When each request had its first token, by request id.
    """

    flush: int
    lost: int
    first_s: dict[str, float]
    steps: tuple[StepRecord, ...]

    def of(self, rid: str) -> list[StepRecord]:
        """Return the steps that gave a request tokens."""
        return [step for step in self.steps if rid in step.committed]


def read_records(folder: Path, after: int) -> Records:
    """Read the records of the newest flush.

    Args:
        folder: Where the plugin writes.
        after: Count of the flush before it.

    Raises:
        RuntimeError: The plugin wrote nothing, or lost steps.
    """
    path = folder / RECORDS
    plain: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"flush": 0}
    if plain["flush"] <= after:
        raise RuntimeError(
            "the plugin wrote no steps at /flush_cache: it is not active in the server's scheduler"
        )
    if plain["lost"]:
        raise RuntimeError(f"the plugin lost {plain['lost']} steps: their results never came back")
    steps = tuple(StepRecord(**step) for step in plain["steps"])
    return Records(plain["flush"], plain["lost"], plain["first_s"], steps)
