"""Text to token ids and back, chat template included, from a checkpoint folder alone."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypedDict

import jinja2
import jinja2.ext
import jinja2.meta
import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment

from drafters.json_object import json_object

# Some templates print today's date. A prompt must be the same tomorrow, or no cell could be
# resumed or compared, so the clock of every template stands at this day.
TEMPLATE_DATE = datetime.datetime(2024, 7, 26)


class Message(TypedDict):
    """One turn of a conversation, in the field's usual form."""

    role: str
    content: str


class Tokenizer:
    """A fast tokenizer with its chat template.

    Attributes:
        vocab_size: Tokens that have an id, special ones included.
        stop_ids: Ids that end a response.
    """

    def __init__(self, folder: Path, num_rows: int | None = None) -> None:
        """Read `tokenizer.json` and its neighbours in `folder`.

        Args:
            folder: The folder.
            num_rows: Rows of the target's embedding; None for what the folder's configuration says.

        Raises:
            ValueError: A file is missing or cannot be read.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ValueError(
                f"{folder} has no tokenizer.json; only fast tokenizers can be used: Transformers"
                " writes one with AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )
        self._folder = folder
        self._tokenizer = _opened(path)
        self._num_rows = num_rows or vocab_size(folder)
        config = read_json(folder / "special_tokens_map.json")  # where older files keep them
        config |= read_json(folder / "tokenizer_config.json")
        self._specials = _special_tokens(config)
        self._source = _template_source(folder, config)
        self._template = _compile(self._source, folder)
        self.vocab_size = self._tokenizer.get_vocab_size()
        self.stop_ids = self._stop_ids()

    def encode(self, text: str, add_special_tokens: bool = False) -> tuple[int, ...]:
        """Return the text's token ids.

        Raises:
            ValueError: The target's embedding has no row for one of them.
        """
        ids = tuple(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
        if ids and self._num_rows is not None and (largest := max(ids)) >= self._num_rows:
            raise ValueError(
                f"token {self._tokenizer.id_to_token(largest)!r} has id {largest}, and the target's"
                f" embedding has {self._num_rows} rows (tokenizer.json of {self._folder} holds"
                f" {self.vocab_size} tokens): resize the embedding, or take the token out of the"
                " tokenizer and of the chat template"
            )
        return ids

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Return the text of token ids."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def vocabulary(self) -> dict[str, int]:
        """Return every token's stored string with its id."""
        return dict(self._tokenizer.get_vocab(with_added_tokens=True))

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template; a base model has none."""
        return self._template is not None

    def template_variables(self) -> frozenset[str]:
        """Return the names of the variables that the chat template reads."""
        if self._template is None or self._source is None:
            return frozenset()
        parsed = self._template.environment.parse(self._source)
        known = {"raise_exception", "strftime_now"}  # ours
        return frozenset(jinja2.meta.find_undeclared_variables(parsed) - known)

    def render(
        self,
        messages: Sequence[Message] | Sequence[dict[str, Any]],
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Return the conversation as the model expects it, up to the start of its answer.

        Args:
            messages: The conversation.
            variables: What else the template gets, such as `tools` or `enable_thinking`.

        Raises:
            ValueError: There is no chat template, or it refuses the conversation.
        """
        if self._template is None:
            raise ValueError(f"{self._folder} has no chat template")
        try:
            given = {"tools": None, "documents": None, **self._specials, **variables}
            return self._template.render(
                given | {"messages": list(messages), "add_generation_prompt": True}
            )
        except Exception as error:  # noqa: BLE001 - a template is a program and may divide by 0
            raise ValueError(f"the chat template of {self._folder} refuses: {error}") from None

    def chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the conversation's token ids, chat template applied.

        A checkpoint without a template is a base model: it continues the last message's text.
        """
        if self._template is None:
            return self.encode(messages[-1]["content"], add_special_tokens=True)
        return self.encode(self.render(messages))

    def _stop_ids(self) -> frozenset[int]:
        """Collect the end tokens of the generation config, else the config, and the tokenizer's."""
        ids: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            declared = read_json(self._folder / name).get("eos_token_id")
            several = declared if isinstance(declared, list) else [declared]
            ids |= {token for token in several if isinstance(token, int)}
            if ids:
                break
        eos = self._tokenizer.token_to_id(self._specials.get("eos_token", ""))
        return frozenset(ids if eos is None else ids | {eos})


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object, empty if there is no such file.

    Raises:
        ValueError: The file is not a JSON object.
    """
    return json_object(path) if path.is_file() else {}


def vocab_size(folder: Path) -> int | None:
    """Return the vocabulary size that a checkpoint's configuration names, if it names one."""
    config = read_json(folder / "config.json")
    text = config.get("text_config")  # of a model that also sees
    size = (text if isinstance(text, dict) else config).get("vocab_size")
    return size if isinstance(size, int) else None


def _opened(path: Path) -> tokenizers.Tokenizer:
    """Open a tokenizer; a damaged one gives one line."""
    read_json(path)
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except BaseException as error:
        if not is_librarys(error):
            raise
        raise ValueError(f"{path} is no tokenizer ({error}); copy it again") from None


def is_librarys(error: BaseException) -> bool:
    """Whether an error is the tokenizers' library's: its panics are no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """Return the special tokens' texts; the file holds strings or objects with `content`."""
    entries = {key: value for key, value in config.items() if key.endswith("_token")}
    texts = {k: v.get("content") if isinstance(v, dict) else v for k, v in entries.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}


def _template_source(folder: Path, config: dict[str, Any]) -> str | None:
    """Return the template's text from where the different versions of the format keep it."""
    if (folder / "chat_template.jinja").is_file():
        try:
            return (folder / "chat_template.jinja").read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{folder}: chat_template.jinja is no text: {error}") from None
    source = config.get("chat_template") or read_json(folder / "chat_template.json").get(
        "chat_template"
    )
    if isinstance(source, list):  # several named templates, as lists of older files keep them
        entries = [entry for entry in source if isinstance(entry, dict)]
        source = {str(entry.get("name")): entry.get("template") for entry in entries}
    if isinstance(source, dict):
        if "default" not in source:
            names = ", ".join(map(str, source)) or "none"
            raise ValueError(
                f"{folder}: of its chat templates ({names}) none is named default; name one so"
            )
        source = source["default"]
    if source is not None and not isinstance(source, str):
        raise ValueError(f"{folder}: chat_template is no text; copy the tokenizer again")
    return source


class _GenerationTags(jinja2.ext.Extension):
    """Renders what stands between the tags by which training finds the assistant's text."""

    tags = {"generation"}  # noqa: RUF012 - as jinja declares it

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Return the statements between the tags, in a scope of their own as a call's body."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return [jinja2.nodes.Scope(body).set_lineno(line)]


def _compile(source: str | None, folder: Path) -> jinja2.Template | None:
    """Compile a template in a sandbox, with the helpers that Hugging Face templates rely on."""
    if source is None:
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationTags],
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise, "strftime_now": TEMPLATE_DATE.strftime}
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise ValueError(f"the chat template of {folder} cannot be read: {error}") from None


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Replace jinja's filter of this name, which escapes for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> NoReturn:
    """Let a template refuse a conversation."""
    raise jinja2.TemplateError(message)
