"""Build and check the cell of every config before anything runs; print them for a dry run.

A mistake that several cells make is one line, with the settings that tell those cells from
the others.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import DictConfig

from pipeline.cell.cell import Cell, DescribesStart, LimitsContext
from pipeline.config.instantiate import build_part
from pipeline.config.messages import folded, masked
from pipeline.machine.cache import cache_root
from pipeline.sweep.planned import PlannedCell
from pipeline.target.target import Target
from pipeline.workload.prompts import Prompt, check_draft, check_lengths, prompts_digest
from pipeline.workload.sources import Workload

PARTS = ("target", "drafter", "verify", "engine", "workload", "sampling", "parallelism")
NO_PROMPTS = "not-read"  # in place of the prompts' digest


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
    """Return the command line of these overrides; resuming is not part of what reproduces."""
    kept = (o for o in overrides if not o.startswith("resume="))
    return masked(" ".join(["python -m pipeline", *map(shlex.quote, kept)]))


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
        try:
            if not cell.is_baseline:
                check_draft(prompts, room, max_new, cell.drafter.num_draft_tokens)
            cell.engine.check(cell)
        except ValueError as error:
            return PlannedCell(cell, prompts, command(overrides), impossible=str(error))
        return PlannedCell(cell, prompts, command(overrides))

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
