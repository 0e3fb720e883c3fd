"""What every mode of the gate needs: the cells' configs, a folder, MLflow, and tokens as text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from omegaconf import DictConfig

from pipeline.config.compose import compose_each
from pipeline.gate.exact import Text
from pipeline.gate.reference import grid_digest
from pipeline.gate.settings import GateSettings
from pipeline.machine.cache import cache_root
from pipeline.sweep.build import build_part
from pipeline.sweep.settings import Settings
from pipeline.target.tokenizer import Tokenizer
from pipeline.track import Tracker


@dataclass(frozen=True)
class Context:
    """What all modes need.

    Attributes:
        settings: What the gate is told.
        configs: The composed config of each cell.
        sweep: What a sweep of the same cells would be told: folder of runs, launcher, MLflow.
        folder: For what this run writes.
    """

    settings: GateSettings
    configs: list[DictConfig]
    sweep: Settings
    folder: Path

    @classmethod
    def of(cls, settings: GateSettings) -> Context:
        """Compose the cells and make the folder.

        Raises:
            ValueError: A setting is unknown, or a cell is not greedy.
        """
        configs = compose_each(settings.jobs)
        for config in configs:
            if config.sampling.temperature or config.sampling.held_accept_length:
                raise ValueError(
                    "the gate compares outputs token by token: set sampling.temperature=0 and"
                    " sampling.held_accept_length=0"
                )
        sweep = Settings.read(configs[0])
        name = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
        folder = Path(settings.output).expanduser().absolute() if settings.output else None
        folder = folder or sweep.runs / "gate" / name
        folder.mkdir(parents=True, exist_ok=True)
        return cls(settings, configs, sweep, folder)

    @property
    def grid(self) -> str:
        """The grid's name."""
        return grid_digest(self.settings.cell_jobs)

    def tracker(self) -> Tracker:
        """Open MLflow."""
        return Tracker.open(self.sweep.tracking_uri, self.sweep.experiment, self.sweep.runs)

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        """The target's tokenizer; read when the first token is shown."""
        target = build_part(self.configs[0], "target")
        return None if target.is_random else target.tokenizer(cache_root())

    @property
    def text(self) -> Text:
        """What gives a token's text by its id."""

        def decode(token: int) -> str:
            return "" if self._tokenizer is None else self._tokenizer.decode([token])

        return decode
