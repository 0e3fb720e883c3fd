"""What all cells of a sweep have in common: a grid over it would be a sweep for each value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omegaconf import DictConfig

SHARED = ("launcher", "measurement", "runs", "cache", "resume", "on_impossible", "tracking")


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
