"""Run one version's cells in its process, and grow their records by a repetition a round."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pipeline.cell.response import Response
from pipeline.config.compose import Job
from pipeline.gate.arm import Arm, arm
from pipeline.gate.validity import fault
from pipeline.gate.versions.process import Side, SideFailed
from pipeline.measure.wording import cell_names
from pipeline.record.older import abilities_of
from pipeline.record.record import CellRecord, Status
from verify.base import Proof

NOT_RUN = Proof("none", 0, 0, "none", "none")
_Part = TypeVar("_Part")


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
