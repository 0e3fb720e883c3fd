"""`python -m pipeline.target prepare`: make a target's checkpoint now, not in a sweep."""

from __future__ import annotations

import sys
import time

from pipeline.config.compose import HYDRA_ERRORS, compose_each
from pipeline.config.instantiate import build_part
from pipeline.config.messages import folded, guarded
from pipeline.machine.cache import cache_root
from pipeline.target.target import Target
from pipeline.target.weight_files import tensor_files


def main(arguments: list[str]) -> None:
    """Serve `python -m pipeline.target prepare [overrides]`: make the target's checkpoint now.

    Args:
        arguments: `prepare` and Hydra overrides, such as `target=smollm2_135m cache=/data/cache`.
    """
    if arguments[:1] != ["prepare"]:
        raise SystemExit("usage: python -m pipeline.target prepare [target=NAME] [cache=FOLDER]")
    try:
        (config,) = compose_each([arguments[1:]])
        target: Target = build_part(config, "target")
        start = time.monotonic()
        folder = target.folder(cache_root(config.cache))
        tensor_files(folder)
    except (ValueError, *HYDRA_ERRORS) as error:
        raise SystemExit(f"error: {folded(error)}") from None
    sys.stdout.write(f"target {target.name}: {folder} ({time.monotonic() - start:.1f} s)\n")


if __name__ == "__main__":
    sys.exit(guarded("python -m pipeline.target", lambda: main(sys.argv[1:])))
