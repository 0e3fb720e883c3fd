"""The CI regression job: exit 0 for pass, 1 for a regression, 2 where nothing can be said.

python -m pipeline.gate baseline=main
python -m pipeline.gate reference=gate.json
python -m pipeline.gate gate.record=true record_to=gate.json
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipeline.gate.command import record_reference, run_against, run_side_by_side
from pipeline.gate.settings import read
from pipeline.track import TrackerAway

REFUSED = 2
STOPPED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        settings = read(given)
        if settings.record:
            return record_reference(settings)
        return run_side_by_side(settings) if settings.baseline else run_against(settings)
    except (ValueError, TrackerAway) as refusal:
        sys.stderr.write(f"{refusal}\n")
        return REFUSED
    except KeyboardInterrupt:
        return STOPPED


if __name__ == "__main__":
    sys.exit(main())
