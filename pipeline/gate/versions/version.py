"""Run one version's cells in a process of its own, and keep their records.

A `Side` drives the process: it sends requests, reads answers and notices its death. A `Version`
grows the records of its cells by a repetition a round.
"""

from __future__ import annotations

import dataclasses
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pipeline.cell.response import Response
from pipeline.config.compose import Job
from pipeline.gate.arm import Arm, arm
from pipeline.gate.validity import fault
from pipeline.gate.versions import child
from pipeline.gate.versions.checkout import Tree
from pipeline.machine.reaper import CELL_MARK, kill_marked
from pipeline.measure.wording import cell_names
from pipeline.record.older import abilities_of
from pipeline.record.record import CellRecord, Status
from pipeline.sweep.ray_launcher import QUIET
from pipeline.sweep.running_cell import tail
from verify.base import Proof

CHUNK = 1 << 16
NOT_RUN = Proof("none", 0, 0, "none", "none")
_Part = TypeVar("_Part")


class SideFailed(Exception):
    """A version's process raised, died, hung or sent what cannot be read; the text is one line."""


class Side:
    """The process of one version; it sleeps between requests, when the cores are the other one's.

    Attributes:
        tree: The version.
        log: File with the output of its process.
    """

    def __init__(self, tree: Tree, python: str, cache: Path, mark: str, log: Path) -> None:
        """Start the process; it loads the version's code by itself.

        Args:
            tree: The version.
            python: Its interpreter.
            cache: Its cache folder.
            mark: Unique text that its own children inherit.
            log: File for its output.
        """
        self.tree, self.log, self._mark = tree, log, mark
        self._read = b""
        threads = os.environ.get("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        environment = QUIET | {"OMP_NUM_THREADS": threads, CELL_MARK: mark}
        environment |= {"PYTHONPATH": str(tree.path), "SPECROI_CACHE": str(cache)}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [python, "-P", child.__file__, str(tree.path)],
                cwd=tree.path,
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C is the driver's to handle
            )

    def begin(self, do: str, **arguments: Any) -> None:
        """Send a request: a method of `child.Cells` and its arguments.

        Raises:
            SideFailed: The process is dead.
        """
        assert self._process.stdin is not None
        request = json.dumps({"do": do, **arguments}) + "\n"
        try:
            self._process.stdin.write(request.encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure(do) from None

    def result(self, do: str, timeout_s: float) -> Any:
        """Wait for the answer.

        Raises:
            SideFailed: It raised, died, did not answer in time, or answered what is not JSON.
        """
        assert self._process.stdout is not None
        pipe, end = self._process.stdout.fileno(), time.monotonic() + timeout_s
        while b"\n" not in self._read:
            if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
                raise SideFailed(f"{self.tree}: {do} did not finish within {timeout_s:g} s")
            chunk = os.read(pipe, CHUNK)
            if not chunk:
                raise self._failure(do)
            self._read += chunk
        line, _, self._read = self._read.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError:
            raise SideFailed(f"{self.tree}: {do}: the answer is not JSON; see {self.log}") from None

    def ask(self, do: str, timeout_s: float, **arguments: Any) -> Any:
        """Send a request and wait for its answer.

        Raises:
            SideFailed: As `begin` and `result`.
        """
        self.begin(do, **arguments)
        return self.result(do, timeout_s)

    def kill(self) -> None:
        """Kill the process and all that it started."""
        self._process.kill()
        self._process.communicate()
        kill_marked(f"{CELL_MARK}={self._mark}")

    def _failure(self, do: str) -> SideFailed:
        """Return the reason of a dead process: the last line of its log, or its signal."""
        status = self._process.wait()
        if status < 0:
            return SideFailed(f"{self.tree}: {do}: killed by {signal.Signals(-status).name}")
        last = next((x for x in reversed(tail(self.log).splitlines()) if x.strip()), "no message")
        return SideFailed(f"{self.tree}: {do}: {last.strip()}")


@dataclass
class Version:
    """One version in a match.

    Attributes:
        side: Its process.
        start_timeout_s: Longest build, and longest start of a cell.
        answer_timeout_s: Longest answer.
        records: The records of its cells, in the order of the jobs; a repetition is a round.
        prompts: Ids of the prompts that all of its cells answer.
    """

    side: Side
    start_timeout_s: float
    answer_timeout_s: float
    records: list[CellRecord] = field(default_factory=list)
    prompts: tuple[str, ...] = ()
    _contradictions: dict[int, str] = field(default_factory=dict)
    _round: dict[int, dict[int, Response]] = field(default_factory=dict)

    def begin_build(self, jobs: Sequence[Job]) -> None:
        """Let it load its code and build its cells, without waiting for it."""
        self.side.begin("build", jobs=jobs)

    def build(self) -> None:
        """Wait until its cells are built; read their records.

        Raises:
            SideFailed: It cannot build them, or their records lack a field.
        """
        built = self.side.result("build", self.start_timeout_s)
        self.records = [_planned(x["record"]) for x in built]
        prompts = {tuple(x["prompts"]) for x in built}
        if len(prompts) > 1:
            raise SideFailed("cells with different prompts: a match goes prompt by prompt")
        self.prompts = prompts.pop()

    def start(self, cell: int) -> None:
        """Load a cell and warm it up, alone on the machine."""
        settings = self.side.ask("start", self.start_timeout_s, cell=cell)
        self.records[cell] = replace(self.records[cell], settings=settings)

    def answer(self, cell: int, prompt: int, repetition: int) -> Response:
        """Let a cell answer a prompt; keep the response for the round."""
        asked = {"cell": cell, "prompt": prompt, "repetition": repetition}
        response = _part(Response, self.side.ask("answer", self.answer_timeout_s, **asked))
        self._round.setdefault(cell, {})[prompt] = response
        return response

    def end_round(self) -> None:
        """Add the round to each cell's record as a repetition, with the engine's counts so far."""
        for cell, responses in self._round.items():
            record = self.records[cell]
            found = self.side.ask("proof", self.answer_timeout_s, cell=cell)
            self._contradictions[cell] = found["contradiction"]
            whole = tuple(responses[prompt] for prompt in sorted(responses))
            self.records[cell] = replace(
                record,
                status=Status.OK,
                proof=_part(Proof, found["proof"]),
                repetitions=(*record.repetitions, whole),
            )
        self._round = {}

    def arms(self) -> list[Arm]:
        """Return its cells as arms, as far as they ran."""
        names = cell_names(self.records)
        return [
            arm(r, names[r.cell_id], fault(r, self._contradictions.get(i, ""), self.records))
            for i, r in enumerate(self.records)
        ]


def _planned(fields: Mapping[str, Any]) -> CellRecord:
    """Build the record of a cell that the other version planned.

    Raises:
        SideFailed: The other version says too little of it.
    """
    record = _part(CellRecord, fields)
    return replace(record, abilities=abilities_of(fields), proof=NOT_RUN)


def _part(kind: type[_Part], fields: Mapping[str, Any]) -> _Part:
    """Build a value of this version of the gate from another version's fields.

    Raises:
        SideFailed: A field is missing.
    """
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    needed = {
        name
        for name, f in known.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    if missing := sorted(needed - set(fields)):
        raise SideFailed(f"its {kind.__name__} has no {', '.join(missing)}")
    return kind(**{k: _frozen(v) for k, v in fields.items() if k in known and k != "repetitions"})


def _frozen(value: Any) -> Any:
    """Return a list of JSON's as a tuple."""
    return tuple(value) if isinstance(value, list) else value
