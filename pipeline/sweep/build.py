"""Build and check the cell of every config before anything runs; print them for a dry run.

A `PlannedCell` is one that is ready to be measured, with what its engine asks of the machine. A
mistake that several cells make is one line, with the settings that tell those cells from the
others.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import DictConfig

from pipeline.cell.cell import Cell, DescribesStart, LimitsContext, NeedsGpus, StaysLoaded, flat
from pipeline.config.instantiate import build_part
from pipeline.config.messages import folded, masked
from pipeline.machine.cache import cache_root
from pipeline.record.record import CellRecord
from pipeline.target.target import Target
from pipeline.workload.prompts import (
    Prompt,
    check_draft,
    check_lengths,
    prompts_digest,
    workload_note,
)
from pipeline.workload.sources import Workload

PARTS = ("target", "drafter", "verify", "engine", "workload", "sampling", "parallelism")
NO_PROMPTS = "not-read"  # in place of the prompts' digest


@dataclass(frozen=True)
class PlannedCell:
    """A cell to measure.

    Attributes:
        command: The command that reproduces it.
        impossible: Why the engine cannot run it; "" if it can.
    """

    cell: Cell
    prompts: tuple[Prompt, ...]
    command: str
    impossible: str = ""

    @property
    def gpus(self) -> int:
        """GPUs that the cell's engine asks for."""
        engine = self.cell.engine
        return engine.num_gpus(self.cell) if isinstance(engine, NeedsGpus) else 0

    @property
    def resident(self) -> bool:
        """Whether the engine may stay loaded while other cells are measured; most may."""
        engine = self.cell.engine
        return engine.resident if isinstance(engine, StaysLoaded) else True

    @property
    def prompts_per_turn(self) -> int:
        """Prompts that the cell answers before another one has its turn."""
        return 1 if self.resident else len(self.prompts)

    @property
    def num_turns(self) -> int:
        """Turns of one repetition."""
        return len(self.prompts) // self.prompts_per_turn

    @property
    def _note(self) -> dict[str, str]:
        """What the prompts say of themselves, beside the settings."""
        note = workload_note(self.prompts)
        return {"workload.note": note} if note else {}

    @property
    def record(self) -> CellRecord:
        """The cell's record before anything was measured."""
        cell = self.cell
        return CellRecord(
            cell_id=cell.cell_id,
            comparison=cell.comparison,
            label=cell.label,
            params=flat(cell) | self._note,
            is_baseline=cell.is_baseline,
            width=cell.drafter.num_draft_tokens + 1,
            greedy=cell.sampling.temperature == 0 and not cell.sampling.held_accept_length,
            abilities=cell.abilities,
            command=self.command,
        )


class Refused(ValueError):
    """A grid that cannot run; one line per mistake."""


def build_cells(
    configs: Sequence[DictConfig], overrides: Sequence[Sequence[str]], on_impossible: str
) -> list[PlannedCell]:
    """Build and check the cell of every config; equal cells become one.

    Args:
        configs: One composed config per job.
        overrides: The overrides that made each of them.
        on_impossible: `refuse` the grid for one impossible cell, or `skip` that cell.

    Raises:
        Refused: With all mistakes of all cells, each once, and the overrides that it belongs to.
    """
    if on_impossible not in ("refuse", "skip"):
        raise Refused(f"on_impossible={on_impossible}: must be refuse or skip")
    builder, planned = _Builder(cache_root(configs[0].cache)), dict[str, PlannedCell]()
    mistakes: dict[str, list[Sequence[str]]] = {}
    for config, job in zip(configs, overrides, strict=True):
        try:
            found = builder.plan(config, job)
            if found.impossible and on_impossible == "refuse":
                raise ValueError(f"{found.impossible} (or leave it out: on_impossible=skip)")
            planned.setdefault(found.cell.cell_id, found)
        except ValueError as error:
            mistakes.setdefault(folded(error), []).append(job)
    if mistakes:
        raise Refused("\n".join(_named(mistakes, overrides)))
    return list(planned.values())


def command(overrides: Sequence[str]) -> str:
    """Return the command line of these overrides; resuming is not part of what reproduces.

    A folder of the user's own yamls, `--config-dir`, is: without it their names mean nothing.
    """
    kept = (o for o in overrides if not o.startswith("resume="))
    words = [*_own_configs(sys.argv[1:]), *kept]
    return masked(" ".join(["python -m pipeline", *map(shlex.quote, words)]))


def _own_configs(arguments: Sequence[str]) -> list[str]:
    """Return the words of a command line that name a folder of configs."""
    for place, word in enumerate(arguments):
        if word in ("--config-dir", "-cd"):
            return ["--config-dir", *arguments[place + 1 : place + 2]]
        if word.startswith("--config-dir="):
            return [word]
    return []


@dataclass
class _Builder:
    """Builds cells; prompts are loaded once for each workload and target."""

    cache: Path
    _prompts: dict[tuple[Workload, Target], tuple[Prompt, ...] | ValueError] = field(
        default_factory=dict
    )

    def plan(self, config: DictConfig, overrides: Sequence[str]) -> PlannedCell:
        """Build one cell and ask its engine whether it can run."""
        parts = {name: build_part(config, name) for name in PARTS}
        prompts = self._load(parts["workload"], parts["target"])
        room = parts["target"].context_length(self.cache)
        if isinstance(engine := parts["engine"], LimitsContext):
            room = min(room, engine.context_length or room)
        max_new = parts["sampling"].max_new_tokens
        check_lengths(prompts, room, max_new)
        cell = Cell(**parts, prompts_digest=prompts_digest(prompts))
        impossible = ""
        try:
            if not cell.is_baseline:
                check_draft(prompts, room, max_new, cell.drafter.num_draft_tokens)
            cell.engine.check(cell)
        except ValueError as error:
            impossible = str(error)
        return PlannedCell(cell, prompts, command(overrides), impossible)

    def _load(self, workload: Workload, target: Target) -> tuple[Prompt, ...]:
        """Return the workload's prompts, or its refusal again."""
        key = (workload, target)
        if key not in self._prompts:
            try:
                self._prompts[key] = tuple(workload.load(target, self.cache))
            except ValueError as error:
                self._prompts[key] = error
        found = self._prompts[key]
        if isinstance(found, ValueError):
            raise found
        return found


def _named(
    mistakes: dict[str, list[Sequence[str]]], overrides: Sequence[Sequence[str]]
) -> Iterator[str]:
    """Yield a line per mistake; where only some cells make it, with what sets these apart."""
    shared = set(overrides[0]).intersection(*overrides)
    for mistake, jobs in mistakes.items():
        apart = [" ".join(o for o in job if o not in shared) for job in jobs]
        yield mistake if len(jobs) == len(overrides) else f"{mistake} [{'; '.join(apart)}]"


def dry_run(configs: Sequence[DictConfig], overrides: Sequence[Sequence[str]]) -> None:
    """Print every cell that can run, and why the others cannot.

    Args:
        configs: One composed config per job.
        overrides: The overrides that made each of them.

    Raises:
        Refused: A part of a cell cannot be built.
    """
    for config, job in zip(configs, overrides, strict=True):
        sys.stdout.write("\n".join([*_lines(config, job), "", ""]))


def _lines(config: DictConfig, job: Sequence[str]) -> Iterator[str]:
    """Yield a cell's heading, and its commands or its refusal."""
    try:
        parts = {name: build_part(config, name) for name in PARTS}
    except ValueError as error:
        raise Refused(str(error)) from None
    cell = Cell(**parts, prompts_digest=NO_PROMPTS)
    kept = [override for override in job if not override.startswith("dry_run=")]
    yield f"# {cell.label} on {cell.target.name}: {command(kept)}"
    try:
        cell.engine.check(cell)
    except ValueError as error:
        yield f"# refused: {error}"
        return
    if isinstance(cell.engine, DescribesStart):
        yield from map(masked, cell.engine.describe_start(cell))
    else:
        yield f"# engine={cell.engine.name} runs in the worker's own process: no command"
