"""Say what a grid would start, and start nothing: the exact command and environment of each cell.

Neither prompts nor weights are needed, so that a grid for a large box can be read on any machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from omegaconf import DictConfig

from pipeline.cell.cell import Cell
from pipeline.cell.response import DescribesStart
from pipeline.machine.provenance import masked
from pipeline.sweep.build import PARTS, Refused, build_part, command

NO_PROMPTS = "not-read"  # in place of the prompts' digest


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
