"""What is kept of a cell: plain data that outlives the engine, on disk first, then in MLflow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pipeline.cell.cell import Abilities
from pipeline.cell.response import Response
from pipeline.config.messages import folded
from pipeline.record.older import older_abilities, older_deploy
from verify.base import Proof

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class Status(StrEnum):
    """How a cell ended."""

    OK = "ok"
    FAILED = "failed"
    VOID = "void"
    SKIPPED = "skipped"
    UNFINISHED = "unfinished"


@dataclass(frozen=True)
class CellRecord:
    """One cell's raw results and how it ended. Every figure is computed from this, never stored.

    Attributes:
        cell_id: The cell's identity (`Cell.cell_id`).
        comparison: Shared by cells that may be compared (`Cell.comparison`).
        label: Name for people, such as `ngram × extend`.
        params: The cell's settings, flat (`pipeline.cell.cell.flat`): `drafter`, `verify`,
            `engine`, `target`, `workload` and dotted names.
        is_baseline: The cell decodes plainly.
        width: Rows of a verify step: draft tokens + 1.
        greedy: Temperature is 0 and no accept length is held, so outputs must equal the baseline's.
        abilities: What its drafter and verify backend said of themselves.
        status: How the cell ended; `reason` says why when it is not `ok`.
        stop_rule: Why repeating ended: `precise`, or the budget that was spent.
        repetitions: Responses by repetition, each in the order of the prompts.
        settings: What the engine resolved (threads, dtype, versions).
        seconds: Wall time by phase: `start`, `warm_up`, `measure`, `orchestrate`.
        command: The command that reproduces the cell.
        log_tail: The worker's or server's last lines, for a failed cell.
        group_starts: UTC times at which the groups began that the cell was measured in; cells
            that were interleaved share one. Empty where it was not noted.
        control_id: The plain cell that was measured again beside this one, or "".
        control: Its responses, by repetition.
    """

    cell_id: str
    comparison: str
    label: str
    params: dict[str, str]
    is_baseline: bool
    width: int
    greedy: bool
    abilities: Abilities = field(default_factory=Abilities)
    status: Status = Status.UNFINISHED
    reason: str = ""
    stop_rule: str = ""
    proof: Proof | None = None
    repetitions: tuple[tuple[Response, ...], ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    command: str = ""
    log_tail: str = ""
    group_starts: tuple[str, ...] = ()
    control_id: str = ""
    control: tuple[tuple[Response, ...], ...] = ()

    @property
    def batch(self) -> int:
        """Requests in flight while it was measured."""
        return int(self.params.get("parallelism.batch", "1"))

    @property
    def held_accept_length(self) -> float:
        """Accept length that the engine pretended; 0 is the real one."""
        return float(self.params.get("sampling.held_accept_length", 0))

    @property
    def dtype(self) -> str:
        """Type that the engine computed in, as it resolved it; "" if it did not say."""
        return self.settings.get("dtype", "")

    @property
    def deploy(self) -> str:
        """The server command that serves the cell, or a comment that says why there is none."""
        return self.settings.get("deploy") or older_deploy(self.params, self.settings, self.width)

    def ended(self, status: Status, reason: str = "") -> CellRecord:
        """Return this record with its end."""
        return replace(self, status=status, reason=reason)


def save_record(record: CellRecord, folder: Path) -> None:
    """Write all but the responses to `folder/record.json`, atomically."""
    plain = asdict(replace(record, repetitions=(), control=()))
    del plain["repetitions"], plain["control"]
    write_atomically(folder / "record.json", json.dumps(plain, indent=1, ensure_ascii=False))


def save_repetition(
    responses: tuple[Response, ...], number: int, folder: Path, kind: str = "repetition"
) -> None:
    """Write one repetition to `folder/<kind>_NNN.jsonl`, atomically, one response a line.

    `kind` is `repetition` for the cell's own, `control` for those of the plain cell beside it.
    """
    lines = [json.dumps(asdict(r), ensure_ascii=False) for r in responses]
    write_atomically(folder / f"{kind}_{number:03d}.jsonl", "\n".join(lines) + "\n")


class Damaged(ValueError):
    """A file of a sweep that cannot be read back.

    Attributes:
        problem: The file and what is wrong in it, without what to do about it.
    """

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        """Say in one line which file is damaged, how, and what to do."""
        self.problem = f"{path}: {problem}"
        super().__init__(f"{self.problem}; {remedy}")


class Loaded(NamedTuple):
    """Cells that were read back.

    Attributes:
        records: Those that could be read, in the order of their folders.
        damaged: A line for each of the others.
    """

    records: list[CellRecord]
    damaged: list[str]


def load_records(folders: Iterable[Path], remedy: str = "") -> Loaded:
    """Read cells' folders back; a damaged one costs no other.

    Args:
        folders: Of cells.
        remedy: What to do about a damaged one; "" is to measure it again.
    """
    found = Loaded([], [])
    for folder in folders:
        try:
            found.records.append(load_record(folder, remedy))
        except Damaged as damage:
            found.damaged.append(str(damage))
    return found


def load_record(folder: Path, remedy: str = "") -> CellRecord:
    """Read a cell's folder back, with the repetitions that were finished.

    Args:
        folder: Of the cell.
        remedy: What to do if it is damaged; "" is to measure the cell again.

    Raises:
        Damaged: A file is not what was written: cut, edited, or of a newer version.
    """
    remedy = remedy or f"delete {folder} and give the sweep's command again with resume=true"
    path = folder / "record.json"
    if not path.exists():
        raise Damaged(path, "is missing", remedy)
    plain = parse(dict[str, Any], path.read_bytes(), path, remedy)
    if "turns" in plain:  # its name until 2026-12-01
        plain["group_starts"] = plain.pop("turns")
    if "abilities" not in plain and isinstance(plain.get("params"), dict):
        plain["abilities"] = asdict(older_abilities(plain["params"]))
    return replace(
        parse(CellRecord, json.dumps(plain).encode(), path, remedy),
        repetitions=_load_repetitions(folder, "repetition", remedy),
        control=_load_repetitions(folder, "control", remedy),
    )


def _load_repetitions(folder: Path, kind: str, remedy: str) -> tuple[tuple[Response, ...], ...]:
    """Read all repetitions of one kind: each has the same prompts.

    Raises:
        Damaged: A line cannot be read, or a file has not as many lines as the first one.
    """
    found: list[tuple[Response, ...]] = []
    for path in sorted(folder.glob(f"{kind}_*.jsonl")):
        lines = path.read_bytes().splitlines()
        if not lines:
            raise Damaged(path, "is empty", remedy)
        found.append(tuple(_response(line, i + 1, path, remedy) for i, line in enumerate(lines)))
        if len(lines) != len(found[0]):
            problem = f"has {len(lines)} lines and the first {kind} {len(found[0])}"
            raise Damaged(path, problem, remedy)
    return tuple(found)


def _response(line: bytes, number: int, path: Path, remedy: str) -> Response:
    """Read a response; what is counted by step has as many items as there are steps.

    Raises:
        Damaged: It is not one, or its lists disagree.
    """
    response = parse(Response, line, path, remedy, f"line {number}: ")
    steps, tokens = len(response.committed), len(response.tokens)
    for name in ("proposed", "depth", "verify_ms", "draft_ms", "step_ms"):
        if (length := len(getattr(response, name))) != steps:
            problem = f"line {number}: {name} has {length} items and committed {steps}"
            raise Damaged(path, problem, remedy)
    if len(response.margins) not in (0, tokens):
        problem = f"line {number}: margins has {len(response.margins)} items and tokens {tokens}"
        raise Damaged(path, problem, remedy)
    return response


Parsed = TypeVar("Parsed")


def parse(
    kind: type[Parsed],
    text: bytes,
    path: Path,
    remedy: str,
    place: str = "",
    extra: Literal["forbid", "ignore"] = "forbid",
) -> Parsed:
    """Return a JSON text as plain data of a kind, nothing converted, missing or left over.

    Args:
        kind: A dataclass or builtin.
        text: What a file holds, or one line of it.
        path: The file.
        remedy: What to do if it is damaged.
        place: Where in the file the text is.
        extra: What becomes of a field that the dataclass has not.

    Raises:
        Damaged: It is not of the kind; the message names the first field that is wrong.
    """
    from pydantic import ValidationError

    if not text.strip():
        raise Damaged(path, f"{place}is empty", remedy)
    hashable: Any = kind  # mypy does not see that a type[T] is
    try:
        parsed: Parsed = _adapter(hashable).validate_json(text, strict=True, extra=extra)
        return parsed
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    where = ".".join(str(key) for key in first["loc"])
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        unknown = f"{place}{where} is unknown: a newer version wrote it"
        raise Damaged(path, unknown, "read it with that version")
    if first["type"] == "missing":
        raise Damaged(path, f"{place}{where} is missing", remedy)
    said = folded(first["msg"])
    if where:
        said = f"{where}: {said} (it is {first['input']!r:.40})"
    raise Damaged(path, f"{place}{said}", remedy)


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """Return what checks a kind of plain data; pydantic loads when the first file is read."""
    from pydantic import ConfigDict, TypeAdapter, with_config

    if is_dataclass(kind):
        for part in (kind, Proof):  # a part does not take over what its whole is told
            with_config(ConfigDict(allow_inf_nan=False))(part)
    return TypeAdapter(kind)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader or a crash sees the old one or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)
