"""Hydra's way in: hands the jobs of a grid to `pipeline.sweep.launch`, all at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, read_write


class SpecroiLauncher(Launcher):
    """Turns a multirun into one sweep; its settings are in the config group `launcher`."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Remember what composes a job's config; the sweep needs no task function.

        Hydra makes its folder, in that of the runs, right after this: a home folder must be
        spelled out by then, and what is no folder refused.
        """
        from pipeline.config.messages import folded
        from pipeline.sweep.settings import REFUSED, runs_folder

        self._context, self._config = hydra_context, config
        try:
            runs = runs_folder(config)
        except ValueError as refusal:
            sys.stderr.write(f"{folded(refusal)}\n")
            raise SystemExit(REFUSED) from None
        with read_write(config.hydra):
            config.hydra.sweep.dir = str(runs / "hydra")

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run all jobs as one sweep; a status other than 0 is returned as the first job's exit."""
        from pipeline.sweep.launch import launch  # Hydra scans this module even for --help

        load = self._context.config_loader.load_sweep_config
        configs = [load(self._config, list(overrides)) for overrides in job_overrides]
        status = launch(configs, job_overrides)
        if status:
            raise SystemExit(status)
        return [
            JobReturn(overrides=overrides, cfg=config, status=JobStatus.COMPLETED)
            for overrides, config in zip(job_overrides, configs, strict=True)
        ]
