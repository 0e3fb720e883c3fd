"""Workloads: which prompts a cell answers. The only module that loads data sets."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pipeline.config.messages import first_line
from pipeline.target.target import Target
from pipeline.workload.files import read_rows
from pipeline.workload.prompts import Prompt, tokenise
from pipeline.workload.rows import Text, read_row

CLASSES = ("chat", "code", "math", "copy")
_DATA = Path(__file__).parent / "data"
_Item = TypeVar("_Item")


class Workload(Protocol):
    """Settings of a workload; a frozen dataclass."""

    @property
    def name(self) -> str:
        """The workload's name in tables and tags."""
        ...

    def load(self, target: Target, cache: Path) -> tuple[Prompt, ...]:
        """Return the prompts in the order in which every cell answers them.

        Args:
            target: Whose tokenizer and chat template are used.
            cache: The cache folder, as `pipeline.machine.cache.cache_root` returns it.

        Raises:
            ValueError: The prompts cannot be had or one is not sound; the text names setting,
                file and line.
        """
        ...


@dataclass(frozen=True)
class Classes:
    """The prompts that come with specroi: classes that behave differently under speculation.

    Attributes:
        per_class: Prompts of each class.
        categories: Which classes, of `CLASSES`.
        seed: Which prompts; a larger `per_class` of the same seed keeps the smaller one's.
        chat_template_kwargs: Variables for the target's chat template, such as `enable_thinking`.
    """

    per_class: int
    categories: tuple[str, ...] = CLASSES
    seed: int = 0
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "classes"

    def __post_init__(self) -> None:
        """Check names and ranges."""
        object.__setattr__(self, "categories", tuple(self.categories))  # yaml gives a list
        _keep_variables(self)
        _check_count("workload.per_class", self.per_class)
        for category in self.categories:
            if category not in CLASSES:
                raise ValueError(
                    f"workload.categories: {category!r} is not one of {', '.join(CLASSES)}"
                )
        if not self.categories or len(set(self.categories)) < len(self.categories):
            raise ValueError("workload.categories: name at least one class, and each only once")

    def load(self, target: Target, cache: Path) -> tuple[Prompt, ...]:
        """Return `per_class` prompts of each class, class after class."""
        texts: list[Text] = []
        for category in self.categories:
            file = _DATA / f"{category}.jsonl"
            rows = _load_dataset(cache, "json", data_files=str(file), split="train")
            known = [read_row(row, file.name, category) for row in rows]
            texts += _draw(known, self.per_class, "workload.per_class", self.seed)
        return tokenise(texts, target.tokenizer(cache), self.chat_template_kwargs)


@dataclass(frozen=True)
class Jsonl:
    """A user's own prompts, a row each: see `pipeline.workload.rows.read_row`.

    Attributes:
        path: The file.
        num_prompts: How many of its prompts; None takes all, in the file's order.
        category: Class of lines that name none.
        seed: Which prompts, when not all are taken.
        chat_template_kwargs: Variables for the target's chat template, such as `enable_thinking`.
    """

    path: str
    num_prompts: int | None = None
    category: str = "jsonl"
    seed: int = 0
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "jsonl"

    def __post_init__(self) -> None:
        """Check the range and that the file is there."""
        _keep_variables(self)
        if self.num_prompts is not None:
            _check_count("workload.num_prompts", self.num_prompts)
        if not Path(self.path).expanduser().is_file():
            raise ValueError(f"workload.path={self.path}: no such file")

    def load(self, target: Target, cache: Path) -> tuple[Prompt, ...]:
        """Return the file's prompts."""
        path = Path(self.path).expanduser()
        texts = [read_row(row, where, self.category) for where, row in read_rows(path)]
        if not texts:
            raise ValueError(f"workload.path={self.path}: the file holds no prompt")
        if self.num_prompts is not None:
            texts = _draw(texts, self.num_prompts, "workload.num_prompts", self.seed)
        return tokenise(texts, target.tokenizer(cache), self.chat_template_kwargs)


@dataclass(frozen=True)
class Hub:
    """A data set of the Hugging Face hub.

    Attributes:
        path: Hub id, `org/name`, or the folder of a data set.
        num_prompts: How many of its prompts.
        split: Such as `train` or `test[:500]`.
        column: Column of texts, or of conversations as lists of messages.
        subset: Configuration of the data set, where it has several.
        revision: Branch, tag or commit.
        category: Class of its prompts.
        seed: Which prompts.
        chat_template_kwargs: Variables for the target's chat template, such as `enable_thinking`.
    """

    path: str
    num_prompts: int
    split: str = "train"
    column: str = "prompt"
    subset: str = ""
    revision: str = ""
    category: str = "hub"
    seed: int = 0
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = "hub"

    def __post_init__(self) -> None:
        """Check the range."""
        _keep_variables(self)
        _check_count("workload.num_prompts", self.num_prompts)

    def load(self, target: Target, cache: Path) -> tuple[Prompt, ...]:
        """Return the data set's prompts."""
        options = {"name": self.subset or None, "revision": self.revision or None}
        rows = _load_dataset(cache, self.path, split=self.split, **options)
        if self.column not in rows.column_names:
            raise ValueError(
                f"workload.column={self.column}: {self.path} has {', '.join(rows.column_names)}"
            )
        order = _draw(range(len(rows)), self.num_prompts, "workload.num_prompts", self.seed)
        return tokenise(
            (self._text(rows, index) for index in order),
            target.tokenizer(cache),
            self.chat_template_kwargs,
        )

    def _text(self, rows: Any, index: int) -> Text:
        """Return the prompt of a row."""
        where = f"{self.path}:{index}"
        text = read_row(rows[index], where, self.category, self.column)
        return replace(text, id=where, category=self.category)  # one class, whatever columns say


def _keep_variables(workload: Any) -> None:
    """Check the variables for the chat template; no value in a yaml is none.

    Raises:
        ValueError: It is not a mapping.
    """
    given = workload.chat_template_kwargs
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise ValueError(
            f"workload.chat_template_kwargs={given}: must be a mapping, such as"
            " {enable_thinking: false}"
        )
    object.__setattr__(workload, "chat_template_kwargs", {str(k): v for k, v in given.items()})


def _load_dataset(cache: Path, path: str, **options: Any) -> Any:
    """Load a data set without progress bars, and without telling the hub about local files."""
    import datasets  # takes a second, which a cell that has its prompts does not need

    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(path, cache_dir=str(cache / "datasets"), **options)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"workload.path={path}: cannot be loaded ({first_line(error)}); check path, split,"
            " subset and revision, and that the hub can be reached, or give a folder"
        ) from None


def _draw(items: Sequence[_Item], count: int, setting: str, seed: int) -> list[_Item]:
    """Return `count` items of a shuffled sequence; more of them begin with the same ones."""
    if count > len(items):
        raise ValueError(f"{setting}={count}: only {len(items)} prompts are there")
    order = list(range(len(items)))
    random.Random(seed).shuffle(order)
    return [items[index] for index in order[:count]]


def _check_count(setting: str, count: int) -> None:
    """Refuse a count that no workload can have."""
    if count < 1:
        raise ValueError(f"{setting}={count}: must be 1 or more")
