"""Read the command line: the gate's own settings, and the overrides that make the cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.config.compose import Job, compose_each, expand, group, key, merged
from pipeline.config.instantiate import check_positive, check_types
from pipeline.config.messages import folded
from pipeline.gate.decision.promise import Promise
from pipeline.sweep.settings import SHARED

OWN = ("candidate", "baseline", "reference", "record_to", "cells", "gate")


@dataclass(frozen=True)
class GateSettings:
    """The settings of one run of the gate.

    Attributes:
        candidate: Folder of the tested version.
        baseline: Git ref or folder that it is measured against, side by side; "" for none.
        reference: File of a recorded reference, or `mlflow`; "" for none.
        record: Measure and keep as the reference.
        record_to: File to write the reference to; "" for none.
        promise: The error rates and effect sizes declared for the timed metrics.
        max_rounds: Most responses to a prompt by each cell of each side.
        max_seconds: No round begins that would end later.
        run_noise: Standard deviation of a run's figures, as a share, until enough are recorded.
        seed: Draws which side answers first.
        trend: Runs of the gate that are tested for a drift; 0 for none.
        output: Folder that a run writes into; "" for one under the folder of runs.
        allow_below_break_even: Record a reference in which drafting does not pay.
        jobs: The overrides of `conf/config.yaml` that make each cell.
    """

    candidate: str
    baseline: str
    reference: str
    record: bool
    record_to: str
    promise: Promise
    max_rounds: int
    max_seconds: float
    run_noise: float
    seed: int
    trend: int
    output: str
    allow_below_break_even: bool
    jobs: tuple[Job, ...]

    def __post_init__(self) -> None:
        """Check that exactly one mode is asked for, and the ranges.

        Raises:
            ValueError: A setting contradicts another one or is out of its range.
        """
        asked = [bool(self.baseline), bool(self.reference), self.record]
        if sum(asked) != 1:
            raise ValueError(
                "give exactly one of baseline=GIT_REF (side by side), reference=FILE or"
                " reference=mlflow (against what was recorded), gate.record=true (record it)"
            )
        if self.record_to and not self.record:
            raise ValueError(f"record_to={self.record_to}: only gate.record=true records")
        for name in ("max_rounds", "max_seconds", "run_noise"):
            check_positive(f"gate.{name}", getattr(self, name))
        if self.trend < 0:
            raise ValueError(f"gate.trend={self.trend}: runs to look at, or 0 for none")

    @property
    def cell_jobs(self) -> tuple[Job, ...]:
        """The jobs without the settings of a sweep: versions side by side run in none."""
        return tuple(tuple(o for o in job if group(o) not in SHARED) for job in self.jobs)

    def jobs_on(self, threads: str) -> tuple[Job, ...]:
        """Fix the CPU threads of jobs that leave them to be measured; "" fixes none."""
        if not threads or any(key(o) == "engine.threads" for job in self.jobs for o in job):
            return self.jobs
        return tuple((*job, f"engine.threads={threads}") for job in self.jobs)


def read(arguments: Sequence[str]) -> GateSettings:
    """Read the command line of the gate.

    Raises:
        ValueError: A setting is unknown or out of its range; one line that names it.
    """
    own = [a for a in arguments if group(a) in OWN]
    (config,) = compose_each([own], "gate", "conf/gate.yaml")
    try:
        jobs = expand(merged(config.cells, [a for a in arguments if a not in own]))
        return _settings(config, jobs)
    except OmegaConfBaseException as error:
        raise ValueError(folded(error)) from None


def _settings(config: DictConfig, jobs: tuple[Job, ...]) -> GateSettings:
    """Build the settings from the composed config.

    Raises:
        ValueError: A value is of another type, naming the setting.
    """
    gate: dict[str, Any] = dict(OmegaConf.to_container(config.gate, resolve=True))  # type: ignore[arg-type]
    promise = {k: gate.pop(k) for k in ("alpha", "power", "min_effect", "tolerance")}
    check_types("gate", Promise, promise)
    checked_later = ("output", "max_seconds", "run_noise")
    check_types("gate", GateSettings, {k: v for k, v in gate.items() if k not in checked_later})
    return GateSettings(
        candidate=str(config.candidate),
        baseline=str(config.baseline or ""),
        reference=str(config.reference or ""),
        record_to=str(config.record_to or ""),
        promise=Promise(**promise),
        output=str(gate.pop("output") or ""),
        jobs=jobs,
        **gate,
    )
