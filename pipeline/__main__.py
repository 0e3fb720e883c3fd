"""The command line: `python -m pipeline drafter=none,ngram verify=extend,graph_captured`."""

from __future__ import annotations

import os
import sys

import hydra
from omegaconf import DictConfig

from pipeline.config.compose import HYDRA_ERRORS, plain
from pipeline.config.messages import guarded

FULL_ERROR = "HYDRA_FULL_ERROR"
ASKS = ("--cfg", "-c", "--info", "-i", "--help", "-h", "--hydra-help", "--version")  # runs nothing
REFUSED = 2


@hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")
def sweep(config: DictConfig) -> None:
    """Never runs: every run is a multirun, which `hydra_plugins.specroi` takes as a whole."""
    raise SystemExit("a run without the launcher: leave hydra.mode and hydra/launcher as they are")


def main() -> None:
    """Run a sweep; exit status 1 if a cell failed, 2 if nothing could start or it broke off."""
    sys.exit(guarded("specroi", _run))


def _run() -> None:
    """Hand the command line to Hydra, and say what it refuses."""
    if not any(argument.split("=")[0] in (*ASKS, "-m", "--multirun") for argument in sys.argv):
        sys.argv.insert(1, "--multirun")  # one cell is a grid of one
    if FULL_ERROR in os.environ:
        sweep()
        return
    os.environ[FULL_ERROR] = "1"  # Hydra then raises what it would print with its own trace
    try:
        sweep()
    except HYDRA_ERRORS as error:
        sys.stderr.write(f"{plain(str(error), sys.argv)}\n")
        raise SystemExit(REFUSED) from None
    except OSError as error:
        if "pipeline.sweep.launch" in sys.modules:
            raise  # past Hydra, which keeps a copy of the overrides in the folder of runs
        sys.stderr.write(
            f"runs: {error.filename}: {error.strerror}; choose another with runs=PATH\n"
        )
        raise SystemExit(REFUSED) from None


if __name__ == "__main__":
    main()
