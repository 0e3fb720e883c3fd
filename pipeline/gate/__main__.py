"""The CI regression job: exit 0 for pass, 1 for a regression, 2 where nothing can be said.

python -m pipeline.gate baseline=main
python -m pipeline.gate reference=gate.json
python -m pipeline.gate gate.record=true record_to=gate.json

Status 1 is a regression and nothing else: a CI job may act on it. Whatever goes wrong is one line
and status 2; `SPECROI_DEBUG=1` adds the traceback.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence

from pipeline.config.messages import DEBUG, STOPPED, folded, masked, one_line

OWN = ("__main__", "pipeline", "drafters", "verify")  # a ValueError that these raise is a refusal
CANNOT_SAY = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate as the command line asks; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(given)
    except KeyboardInterrupt:
        return STOPPED
    except SystemExit as stop:  # a sweep that could not start has said why
        if isinstance(stop.code, str):
            sys.stderr.write(f"{folded(stop.code)}\n")
        return STOPPED if stop.code == STOPPED else CANNOT_SAY
    except Exception as error:  # noqa: BLE001 - Python's own status for it would be a regression's
        if os.environ.get(DEBUG):
            sys.stderr.write(masked(traceback.format_exc()))
        sys.stderr.write(f"{_said(error)}\n")
        return CANNOT_SAY


def _run(given: Sequence[str]) -> int:
    """Read the settings and run the mode that they ask for.

    The rest of the package is imported here, so that a package which is missing or broken is an
    error like any other.

    Raises:
        ValueError: A refusal: the text is the line for the user.
    """
    from pipeline.gate.command import record_reference, run_against, run_side_by_side
    from pipeline.gate.settings import read
    from pipeline.track import TrackerAway

    settings = read(given)
    try:
        if settings.record:
            return record_reference(settings)
        return run_side_by_side(settings) if settings.baseline else run_against(settings)
    except TrackerAway as away:
        raise ValueError(str(away)) from away


def _said(error: Exception) -> str:
    """Return the line for an error: a refusal's own, or what was raised and where its trace is."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if isinstance(error, ValueError) and frame.f_globals["__name__"].split(".")[0] in OWN:
        return folded(error)
    return f"the gate broke off: {one_line(error)}; {_log()}"


def _log() -> str:
    """Write the traceback of the error at hand to a file of its own; say where."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="specroi-gate-", suffix=".log", delete=False
        ) as file:
            file.write(masked(traceback.format_exc()))
    except OSError as error:  # a full disk may be what broke it
        return f"no log could be written ({error.strerror}): {DEBUG}=1 shows the traceback"
    return f"traceback in {file.name}, or here with {DEBUG}=1"


if __name__ == "__main__":
    sys.exit(main())
