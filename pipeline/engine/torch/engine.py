"""The torch engine: runs a cell in this process, on a CPU or a GPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drafters.base import FitsTarget, NeedsFiles, Proposes
from pipeline.machine.cache import cache_root
from verify.base import BuildsStep, NeedsRanks

if TYPE_CHECKING:
    from pipeline.cell.cell import Cell
    from pipeline.engine.torch.session import TorchSession

NVIDIA = Path("/dev/nvidiactl")  # there when the driver is: asking torch would take seconds


@dataclass(frozen=True)
class TorchEngine:
    """Settings of the torch engine.

    Attributes:
        device: `cpu`, `cuda`, or `auto`: a GPU where there is one.
        threads: CPU threads of a rank; 0 measures which number decodes fastest, once per sweep and
            target, or shares the cores out where there are several ranks.
        native: Use the C kernels on a CPU: `auto` where a compiler is found, `off`, `require`.
    """

    name: str = "torch"
    device: str = "auto"
    threads: int = 0
    native: str = "auto"

    def __post_init__(self) -> None:
        """Check names and ranges."""
        allowed = {"device": ("auto", "cpu", "cuda"), "native": ("auto", "off", "require")}
        for setting, values in allowed.items():
            if getattr(self, setting) not in values:
                raise ValueError(
                    f"engine.{setting}={getattr(self, setting)}: one of {', '.join(values)}"
                )
        if self.threads < 0:
            raise ValueError(f"engine.threads={self.threads}: 0 (measure) or more")

    def check(self, cell: Cell) -> None:
        """Refuse what this engine cannot run.

        Raises:
            ValueError: The drafter, the verify backend, the sampling or the parallelism.
        """
        for setting, part, ability in (
            ("drafter", cell.drafter, Proposes),
            ("verify", cell.verify, BuildsStep),
        ):
            if not isinstance(part, ability):
                raise ValueError(
                    f"{setting}={part.name} cannot run on engine=torch: {type(part).__name__} has"
                    f" no {'start()' if ability is Proposes else 'build()'}; use engine=sglang"
                )
        if cell.sampling.held_accept_length:
            raise ValueError(
                f"sampling.held_accept_length={cell.sampling.held_accept_length:g}: engine=torch"
                " accepts what the target says; set it to 0 or use engine=sglang"
            )
        if cell.parallelism.batch != 1:
            raise ValueError(
                f"parallelism.batch={cell.parallelism.batch}: engine=torch answers one request at"
                " a time; set it to 1 or use engine=sglang"
            )
        if cell.parallelism.tp > 1 and sys.platform != "linux":
            raise ValueError(
                f"parallelism.tp={cell.parallelism.tp}: engine=torch runs several ranks on Linux"
                " alone; set it to 1"
            )
        least = cell.verify.min_ranks if isinstance(cell.verify, NeedsRanks) else 1
        if cell.parallelism.tp < least:
            raise ValueError(
                f"verify={cell.verify.name} needs several ranks; set parallelism.tp={least} or more"
            )
        _check_files(cell)

    def num_gpus(self, cell: Cell) -> int:
        """Return how many GPUs the cell runs on; Ray hides the ones that nobody asked for."""
        wanted = self.device == "cuda" or (self.device == "auto" and NVIDIA.exists())
        return cell.parallelism.tp if wanted else 0

    def start(self, cell: Cell) -> TorchSession:
        """Load target, drafter and verify step."""
        # Torch takes seconds to load: configs are checked without it.
        from pipeline.engine.torch.session import TorchSession

        return TorchSession(cell, self.device, self.threads, self.native)


def _check_files(cell: Cell) -> None:
    """Refuse a target or a drafter that its own files say cannot be loaded."""
    shape = cell.target.checked_shape(cache_root())
    if isinstance(cell.drafter, NeedsFiles):
        cell.drafter.check(local=True)
    if shape is not None and isinstance(cell.drafter, FitsTarget):
        cell.drafter.check_fits(shape)
