"""Expand a grid's overrides into jobs and compose the config of each.

Commas in an override make a grid, as Hydra's own multirun does. What Hydra refuses becomes one line
that names the setting and the way to list the valid ones.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from pipeline.config.messages import folded

HYDRA_ERRORS = (HydraException, OmegaConfBaseException)
EVERY_SETTING = "`python -m pipeline --cfg job`"


def compose_each(
    jobs: Iterable[Sequence[str]], name: str = "config", all_settings: str = EVERY_SETTING
) -> list[DictConfig]:
    """Return the config of each job, a job being its overrides.

    Args:
        jobs: The cells of a grid, one after the other.
        name: The file of `conf` that they override.
        all_settings: Where all of its settings are shown.

    Raises:
        ValueError: A setting is unknown, or not written as one.
    """
    given = [list(job) for job in jobs]
    try:
        with initialize_config_module("conf", version_base="1.3"):
            return [compose(name, overrides=job) for job in given]
    except HYDRA_ERRORS as error:
        everything = itertools.chain(*given)
        raise ValueError(plain(str(error), everything, all_settings)) from None
    except (TypeError, AttributeError) as error:  # Hydra's own, where a group is given a list
        raise ValueError(f"{folded(given)}: cannot be composed ({folded(error)})") from None


def plain(error: str, arguments: Iterable[str], all_settings: str = EVERY_SETTING) -> str:
    """Return Hydra's message as one line that says what to do here."""
    text = folded(error).split(" Config search path:")[0]
    text, grammar, _ = text.partition(" See https://hydra.cc/docs/")
    if grammar:
        return (
            f"{text}; write NAME=VALUE, and quotes around a value that has more than plain letters,"
            " inside those of the shell: 'runs=\"/tmp/ü\"'"
        )
    found = re.match(r"Could not override '(([\w/]+)\.[\w.]+)'", text)
    if found is None:
        return text
    setting, group = found.groups()
    members = {a.partition("=")[2] for a in arguments if a.partition("=")[0] == group}
    if len(members) > 1 or any("," in member for member in members):
        return (
            f"{setting} is not a setting of every {group}; in a grid over {group} write"
            f" {setting}=choice(VALUE), and leave out those that lack it"
        )
    return f"{setting}: there is no such setting; {all_settings} shows all"


Job = tuple[str, ...]


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
