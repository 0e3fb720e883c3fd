"""Overrides of `conf/config.yaml`: the cells that they make, and what each of them sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException

from pipeline.shared import SHARED

Job = tuple[str, ...]


def cell_jobs(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """Return jobs without what only concerns a sweep: versions side by side are not told it."""
    return tuple(tuple(o for o in job if group(o) not in SHARED) for job in jobs)


def expand(overrides: Iterable[str]) -> tuple[Job, ...]:
    """Return the overrides of each cell of the grid that commas make.

    Raises:
        ValueError: One is not written as an override.
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException as error:
        raise ValueError(f"{error.override}: not written as setting=value") from None
    choices = [
        [f"{o.get_key_element()}={value}" for value in o.sweep_string_iterator()]
        if o.is_sweep_override()
        else [str(o.input_line)]
        for o in parsed
    ]
    return tuple(itertools.product(*choices))


def merged(defaults: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return both, without the defaults that something given replaces.

    Another member of a group also replaces the settings of the default one.
    """
    keys = {key(override) for override in given}
    kept = [o for o in defaults if key(o) not in keys and group(o) not in keys]
    return [*kept, *given]


def key(override: str) -> str:
    """Return what an override sets."""
    return override.partition("=")[0].lstrip("+~")


def group(override: str) -> str:
    """Return the first part of what an override sets."""
    return key(override).partition(".")[0]
