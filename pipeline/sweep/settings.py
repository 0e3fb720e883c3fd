"""Read the settings of a sweep that are not a cell's: folders, launcher, stop rule, MLflow.

They hold for the whole sweep, so `check_shared` refuses a grid over any of them.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipeline.config.instantiate import build_part, check_numbers, check_types
from pipeline.config.messages import masked
from pipeline.sweep.stop_rule import StopRule
from pipeline.sweep.workers import Launcher
from pipeline.track.client import PORT

REFUSED = 2  # exit status of what was refused before anything ran
NOT_IN_ADDRESS = frozenset("%?")  # a store's file would silently be another one
SHARED = ("launcher", "measurement", "runs", "cache", "resume", "on_impossible", "tracking")


@dataclass(frozen=True)
class Settings:
    """Settings of a whole sweep, the same for all its cells.

    Attributes:
        runs: Folder of all sweeps.
        resume: Continue the newest sweep of the same cells.
        seed: Shuffles the order of repetitions.
        config: The first cell's composed config, as yaml; the cells say what differs.
    """

    runs: Path
    resume: bool
    launcher: Launcher
    stop_rule: StopRule
    tracking_uri: str
    experiment: str
    seed: int = 0
    config: str = ""

    @classmethod
    def read(cls, config: DictConfig) -> Settings:
        """Read them from a composed config.

        Raises:
            ValueError: A value is out of its range; the text names the setting.
        """
        if not isinstance(config.resume, bool):
            raise ValueError(f"resume={config.resume}: must be true or false")
        runs = runs_folder(config)
        _check_text("tracking.experiment", config.tracking.experiment)
        if config.cache:
            os.environ["SPECROI_CACHE"] = str(config.cache)  # for the workers
        return cls(
            runs=runs,
            resume=config.resume,
            launcher=build_part(config, "launcher"),
            stop_rule=_stop_rule(config),
            tracking_uri=config.tracking.uri or f"sqlite:///{runs / 'mlflow.db'}",
            experiment=config.tracking.experiment,
            seed=config.sampling.seed,
            config=masked(OmegaConf.to_yaml(OmegaConf.masked_copy(config, _without_hydra(config)))),
        )

    @property
    def facts(self) -> dict[str, Any]:
        """What `sweep.json` keeps of them."""
        return {
            "command": masked(shlex.join(["python", "-m", "pipeline", *sys.argv[1:]])),
            "precision": self.stop_rule.precision,
            "launcher": self.launcher.address,
        }

    @property
    def tracking(self) -> dict[str, str]:
        """Where a sweep is tracked, for `sweep.json`; without a password."""
        uri = masked(self.tracking_uri)
        return {"uri": uri, "experiment": self.experiment, "runs": str(self.runs)}

    def dashboard(self, page: str) -> str:
        """How to look at the runs: an address, and the command that serves it if none does.

        Args:
            page: What stands behind the dashboard's address.
        """
        uri = masked(self.tracking_uri)
        if uri.startswith("http"):
            return f"{uri.rstrip('/')}{page}"
        serve = f"mlflow ui --host 127.0.0.1 --port {PORT} --backend-store-uri {shlex.quote(uri)}"
        return f"{serve}, then http://127.0.0.1:{PORT}{page}"


def runs_folder(config: DictConfig) -> Path:
    """Return the folder of all sweeps as an absolute path; nothing is made.

    Raises:
        ValueError: It is no path, or one whose store would be another file.
    """
    _check_text("runs", config.runs)
    if config.tracking.uri is not None:
        _check_text("tracking.uri", config.tracking.uri)
    try:
        runs = Path(config.runs).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"runs={config.runs}: {error}; write the whole path") from None
    if not config.tracking.uri and not NOT_IN_ADDRESS.isdisjoint(str(runs)):
        raise ValueError(
            f"runs={runs}: % and ? mean something in the address of the store there; choose"
            " another folder, or name a store with tracking.uri"
        )
    return runs


def _check_text(setting: str, value: Any) -> None:
    """Refuse what is not a text with something in it."""
    if not isinstance(value, str) or not value.strip():
        shown = "null" if value is None else value
        raise ValueError(f"{setting}={shown}: must be a text; leave it out for the default")


def _without_hydra(config: DictConfig) -> list[str]:
    """Return the keys that are ours."""
    return [str(key) for key in config if key != "hydra"]


def _stop_rule(config: DictConfig) -> StopRule:
    """Build the stop rule; Hydra lets `+measurement.x=1` add what it does not have."""
    given: Any = OmegaConf.to_container(config.measurement, resolve=True)
    check_numbers("measurement", given)
    check_types("measurement", StopRule, given)
    try:
        return StopRule(**given)
    except TypeError as error:
        raise ValueError(f"measurement: {error}") from None


def check_shared(configs: Sequence[DictConfig]) -> None:
    """Refuse a grid over what is one value for a sweep: all values but one would be ignored.

    Raises:
        ValueError: Naming the setting and its values.
    """
    first, *others = ({k: v for name in SHARED for k, v in _leaves(c, name)} for c in configs)
    for setting, value in first.items():
        values = dict.fromkeys([value, *(other.get(setting, "absent") for other in others)])
        if len(values) > 1:
            raise ValueError(
                f"{setting}={','.join(values)}: one value for all cells of a sweep; run a sweep for"
                " each"
            )


def _leaves(config: DictConfig, name: str) -> Iterator[tuple[str, str]]:
    """Yield a setting, or the settings of a group, with its value as text."""
    node = config[name]
    if not isinstance(node, DictConfig):
        yield name, str(node)
        return
    for key in map(str, node):
        yield f"{name}.{key}", str(node[key])
