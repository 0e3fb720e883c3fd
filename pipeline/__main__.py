"""The command line: `python -m pipeline drafter=none,ngram verify=extend,graph_captured`."""

from __future__ import annotations

import os
import sys

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

FULL_ERROR = "HYDRA_FULL_ERROR"
REFUSED = 2


@hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
def sweep(config: DictConfig) -> None:
    """Never runs: every run is a multirun, which `hydra_plugins.specroi` takes as a whole."""
    raise SystemExit("hydra.mode must stay MULTIRUN: one cell is a grid of one")


def main() -> None:
    """Run a sweep; exit status 1 if a cell failed, 2 if nothing could start."""
    if FULL_ERROR in os.environ:
        sweep()
        return
    os.environ[FULL_ERROR] = "1"  # Hydra then raises what it would print with its own trace
    try:
        sweep()
    except (HydraException, OmegaConfBaseException) as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        raise SystemExit(REFUSED) from None


if __name__ == "__main__":
    main()
