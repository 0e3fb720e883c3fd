"""Build the objects that a composed config names, after checking every value against its field.

Only classes of this package are built. A text where a number belongs, and a number that is not
positive where it must be, are refused in one line that names the setting.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Iterator
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

ROOMS = ("drafters.", "verify.", "pipeline.")  # a config may name the classes of these, no others
CALLED = ("pipeline.machine.cache.cache_root",)  # and these functions
HYDRA_KEYS = ("_target_", "_partial_", "_args_", "_recursive_", "_convert_")
# By annotation: how a value of it is called, and what counts as one.
KINDS: dict[str, tuple[str, Any]] = {
    "int": ("a whole number", int),
    "float": ("a number", (int, float)),
    "bool": ("true or false", bool),
    "None": ("null", type(None)),
}
SMALLEST, LARGEST = 1e-12, 1e15  # a share of a norm's epsilon; a second in femtoseconds
LARGEST_WHOLE = 2**63 - 1  # what a seed may be


def build_part(config: DictConfig, name: str) -> Any:
    """Build the class that a part of the config names.

    Raises:
        ValueError: It names a class of another project, or the class refuses its settings.
    """
    node = config[name]
    if node is None:
        raise ValueError(f"{name}=null: must be a part; leave it out for the default")
    try:
        for key, value in _hydra_keys(OmegaConf.to_container(node, resolve=True)):
            if key != "_target_":  # _partial_ and its like would build another thing
                raise ValueError(f"{name}.{key}={value}: no setting of a part; leave it out")
            _check_target(f"{name}._target_={value}", str(value))
        if node._target_ not in CALLED:
            _check_fields(node, name)
        return instantiate(node, _convert_="all")
    except (InstantiationException, OmegaConfBaseException, TypeError) as error:
        cause = error.__cause__ or error
        if isinstance(cause, TypeError):  # an argument that the class does not have, or lacks
            raise ValueError(f"{name}: {cause}") from None
        raise ValueError(str(cause)) from None


def _check_target(setting: str, target: str) -> None:
    """Refuse what is no class of this project's own.

    The name alone does not tell: a module of ours imports others, `pipeline.x.subprocess.Popen`.

    Raises:
        ValueError: Naming the setting.
    """
    refusal = ValueError(f"{setting}: only classes in drafters, verify and pipeline")
    if target in CALLED:
        return
    if not target.startswith(ROOMS):
        raise refusal
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        raise ValueError(f"{setting}: there is no such class") from None
    if not isinstance(found, type) or not f"{found.__module__}.".startswith(ROOMS):
        raise refusal


def _check_fields(node: DictConfig, name: str) -> None:
    """Refuse values of another type than the part's class wants."""
    values: Any = OmegaConf.to_container(node, resolve=True)
    check_numbers(name, values)
    if "_target_" in node:
        check_types(name, get_class(node._target_), values)


def _hydra_keys(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a config tells Hydra, at any depth: the classes that it names, and more."""
    if isinstance(node, dict):
        yield from ((key, value) for key, value in node.items() if key in HYDRA_KEYS)
        for value in node.values():
            yield from _hydra_keys(value)
    elif isinstance(node, list):
        for value in node:
            yield from _hydra_keys(value)


def check_positive(setting: str, value: Any) -> None:
    """Refuse what is not a number above zero.

    Raises:
        ValueError: Naming the setting.
    """
    check_numbers(setting, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ValueError(f"{setting}={value}: must be a number above 0")


def check_numbers(setting: str, values: Any) -> None:
    """Refuse numbers that cannot be computed with, at any depth of a config's plain data.

    A comparison with nan is false, so that it passes every check of a range that asks for a fault.

    Raises:
        ValueError: One is nan or infinite, or its size is absurd; naming the setting.
    """
    if isinstance(values, dict):
        for key, value in values.items():
            check_numbers(f"{setting}.{key}" if setting else str(key), value)
    elif isinstance(values, (list, tuple)):
        for index, value in enumerate(values):
            check_numbers(f"{setting}[{index}]", value)
    elif isinstance(values, float) and not math.isfinite(values):
        raise ValueError(f"{setting}={values}: must be a finite number")
    elif isinstance(values, float) and values and not SMALLEST <= abs(values) <= LARGEST:
        size = "small" if abs(values) < SMALLEST else "large"
        raise ValueError(f"{setting}={values}: too {size} to compute with")
    elif isinstance(values, int) and abs(values) > LARGEST_WHOLE:
        raise ValueError(f"{setting}: a whole number of {values.bit_length()} bits; at most 63")


def check_types(setting: str, kind: type, values: dict[str, Any]) -> None:
    """Refuse a text where a class wants a number, and half a number where it counts.

    A class that compares its fields would otherwise fail with a text of Python's, and one that
    does not would fail in the middle of a sweep. Fields of other types are the class's own matter.

    Args:
        setting: The part of the config, such as `parallelism`.
        kind: The dataclass that is built.
        values: Its arguments by name.

    Raises:
        ValueError: Naming the setting and what it must be.
    """
    if not dataclasses.is_dataclass(kind):
        return
    for field in dataclasses.fields(kind):
        if field.name in values:
            _check(f"{setting}.{field.name}", field.type, values[field.name])


def _check(setting: str, annotation: Any, value: Any) -> None:
    """Refuse a value of one field."""
    wanted = set(_names(annotation))
    if not wanted <= KINDS.keys():
        return
    if not any(_is(value, name) for name in wanted):
        last = sorted(wanted, key=lambda name: name == "None")
        said = " or ".join(KINDS[name][0] for name in last)
        raise ValueError(f"{setting}={'null' if value is None else value}: must be {said}")


def _names(annotation: Any) -> Iterator[str]:
    """Yield the types that an annotation allows, which may be a text or a type."""
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    yield from (name.strip() for name in text.split("|"))


def _is(value: Any, name: str) -> bool:
    """Say whether a value is of a simple type; a whole number is a number, a truth value is not."""
    return isinstance(value, KINDS[name][1]) and (name == "bool" or not isinstance(value, bool))
