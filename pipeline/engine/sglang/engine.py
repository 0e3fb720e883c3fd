"""The SGLang engine: a server per cell, on the GPUs of this machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.engine.sglang.arguments import server_arguments
from pipeline.engine.sglang.checks import check_cell
from pipeline.engine.sglang.environment import server_environment
from pipeline.engine.sglang.settings import SglangSettings
from pipeline.engine.sglang.versions import NEWEST, VERSIONS
from pipeline.machine.cache import cache_root

if TYPE_CHECKING:
    from pipeline.cell.cell import Cell
    from pipeline.engine.sglang.session import SglangSession


@dataclass(frozen=True)
class SglangEngine(SglangSettings):
    """The engine: settings, and a server for each cell."""

    @property
    def resident(self) -> bool:
        """A server takes its GPUs whole, so no other cell is loaded with it."""
        return False

    def num_gpus(self, cell: Cell) -> int:
        """Return how many GPUs the cell needs."""
        return cell.parallelism.tp

    def check(self, cell: Cell) -> None:
        """Refuse what cannot run, before anything starts."""
        version = self.known_version
        check_cell(cell, self, version if version in VERSIONS else NEWEST)

    def start(self, cell: Cell) -> SglangSession:
        """Launch the cell's server and wait until it has answered."""
        from pipeline.engine.sglang.session import SglangSession

        return SglangSession(self, cell)

    def describe_start(self, cell: Cell) -> Iterator[str]:
        """Yield the environment and the command that `start` would use; nothing is started."""
        arguments = server_arguments(cell, self, cache_root())
        version, folder = self.known_version, Path("/tmp/specroi-sglang")
        environment = server_environment(cell, arguments, version, folder)
        environment["PYTHONPATH"] = f"{folder}:$PYTHONPATH"
        yield f"# SGLang {version}, {arguments.tp} GPUs; port and folder are chosen at the start"
        yield " \\\n".join(f"{name}={value}" for name, value in environment.items()) + " \\"
        yield shlex.join(arguments.command(30000))
