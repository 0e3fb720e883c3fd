"""Hydra's way in: hands the jobs of a grid to `pipeline.sweep`, all at once."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class SpecroiLauncher(Launcher):
    """Turns a multirun into one sweep; its settings are in the config group `launcher`."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Remember what composes a job's config; the sweep needs no task function."""
        self._context, self._config = hydra_context, config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run all jobs as one sweep; a status other than 0 is returned as the first job's exit."""
        from pipeline.sweep import launch  # Hydra scans this module even for --help

        load = self._context.config_loader.load_sweep_config
        configs = [load(self._config, list(overrides)) for overrides in job_overrides]
        status = launch(configs, job_overrides)
        if status:
            raise SystemExit(status)
        return [
            JobReturn(overrides=overrides, cfg=config, status=JobStatus.COMPLETED)
            for overrides, config in zip(job_overrides, configs, strict=True)
        ]
