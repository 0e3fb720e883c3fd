"""SGLang's own options, recorded from its parser: what it would refuse is refused at once.

A server reads its arguments after it has imported everything, half a minute later. The same library
parses here, so that beginnings are completed and values are taken exactly as there. The files were
read from the released packages on a machine without a GPU, and their names are those that real
servers answered; `experiments/sglang_grid/record_answers.py` writes them where a server runs.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

FOLDER = Path(__file__).with_name("recorded_options")


def _finite(text: str) -> float:
    """Return the number that a text is.

    Raises:
        ValueError: It is none, not a number, or infinite.
    """
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


_READS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "int": ("a whole number", int),
    "float": ("a number", _finite),
    "json": ("JSON", json.loads),
}


class OptionRefused(ValueError):
    """What SGLang's parser would refuse.

    Attributes:
        option: The option with its dashes, or the word that is none.
        reason: What is wrong with it.
    """

    def __init__(self, option: str, reason: str) -> None:
        """Name the option and what is wrong with it."""
        super().__init__(f"{option}: {reason}")
        self.option, self.reason = option, reason


@dataclass(frozen=True)
class Option:
    """One option of a version.

    Attributes:
        names: Its spellings, with their dashes.
        nargs: How many values, as argparse writes it; None is one.
        type: `int`, `float`, `json`, or anything else for what takes any text.
        choices: The only values, empty where any is taken.
    """

    names: tuple[str, ...]
    nargs: int | str | None = None
    type: str = "str"
    choices: tuple[str, ...] = ()

    def check(self, value: str, version: str) -> None:
        """Refuse a value that the option does not take.

        Raises:
            OptionRefused: It is of another type, or none of the choices.
        """
        what, read = _READS.get(self.type, ("", str))
        try:
            read_value = read(value)
        except ValueError:
            raise OptionRefused(self.names[0], f"{value!r} is not {what}") from None
        shown = value if self.type == "json" else str(read_value)
        if self.choices and shown not in self.choices:
            raise OptionRefused(
                self.names[0],
                f"SGLang {version} takes {', '.join(self.choices)}, not {value!r}"
                f"{_meant(value, self.choices)}",
            )


@lru_cache
def known_options(version: str) -> dict[str, Option]:
    """Return a supported version's options by each of their spellings."""
    found = [
        Option(
            names=tuple(entry["names"]),
            nargs=entry.get("nargs"),
            type=entry.get("type", "str"),
            choices=tuple(entry.get("choices", ())),
        )
        for entry in json.loads((FOLDER / f"{version}.json").read_text())
    ]
    return {name: option for option in found for name in option.names}


def names_option(word: str) -> bool:
    """Whether argparse takes a word for an option; one with a space in its name is a value."""
    return word.startswith("-") and " " not in word.partition("=")[0]


def completed(word: str, version: str) -> Option:
    """Return the option that a word names in full or begins, with dashes or underscores.

    Raises:
        OptionRefused: No option begins like this, or several do.
    """
    known = known_options(version)
    name = word.partition("=")[0].replace("_", "-")
    if name in known:
        return known[name]
    begun = sorted({option for option in known if option.startswith(name)})
    if len({known[option] for option in begun}) > 1:
        shown = ", ".join(begun[:6]) + (f" and {len(begun) - 6} more" if len(begun) > 6 else "")
        raise OptionRefused(name, f"begins several options ({shown}); write the whole name")
    if not begun:
        raise OptionRefused(name, f"SGLang {version} has no such option{_meant(name, known)}")
    return known[begun[0]]


def check_words(words: Sequence[str], version: str) -> None:
    """Refuse arguments that a version's parser would refuse, and options that are given twice.

    Raises:
        OptionRefused: With the option, in full, and what is wrong.
    """
    for word in words:
        if word.startswith("--") and names_option(word):
            completed(word, version)  # its refusals say more than argparse's
    read, left = _parser(version).parse_known_args(list(words), argparse.Namespace(given=[]))
    if left:
        word = left[0]
        raise OptionRefused(
            word,
            "is two words in one; give them apart"
            if word.startswith("-") and " " in word
            else "is no option and belongs to none",
        )
    seen = set()
    for option, values in read.given:
        if option in seen:
            raise OptionRefused(option.names[0], "is given twice; the last would count")
        seen.add(option)
        for value in values:
            option.check(value, version)


class _Parser(argparse.ArgumentParser):
    """Parses as SGLang does, and raises where SGLang ends."""

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        named, _, reason = message.removeprefix("argument ").partition(": ")
        raise OptionRefused(named.split("/")[0], reason or message)


class _Note(argparse.Action):
    """Notes an option with its values; they are checked when all words are known."""

    def __init__(self, *, option: Option, **settings: Any) -> None:
        """Remember the option."""
        super().__init__(**settings)
        self._option = option

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        """Note the values as a list."""
        namespace.given.append((self._option, values if isinstance(values, list) else [values]))


@lru_cache
def _parser(version: str) -> _Parser:
    """Return the parser of a version's options."""
    parser = _Parser(add_help=False)
    for option in dict.fromkeys(known_options(version).values()):
        parser.add_argument(
            *option.names, dest="given", nargs=option.nargs, action=_Note, option=option
        )
    return parser


def _meant(text: str, known: Sequence[str] | dict[str, Option]) -> str:
    """Return a question for the name that was probably meant."""
    near = difflib.get_close_matches(text, list(known), n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""
