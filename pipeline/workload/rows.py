"""What a row may hold: its prompt, what else reaches the model, and what is no part of either."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pipeline.workload.files import Row, check_depth, is_turns

MAX_CHARACTERS = 4_000_000  # longer than any context; tokenising more takes minutes and gigabytes
MAX_LABEL = 64
Turn = dict[str, Any]

_TOKEN_FIELDS = ("input_ids", "token_ids", "prompt_token_ids", "tokens")
_CONVERSATIONS = ("messages", "conversations", "conversation", "turns")
_TEXTS = ("prompt", "question", "instruction")
_SYSTEM = ("system", "system_prompt")
# Handed to the chat template, which must print them.
VARIABLES = ("tools", "documents")
_SHAREGPT = {
    "human": "user", "user": "user", "system": "system",
    "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant",
    "bing": "assistant", "bard": "assistant", "model": "assistant",
}  # fmt: skip
# What a data set says of a row. The answers that it knows are the target's to give.
_METADATA = frozenset({
    "id", "category", "source", "src", "dataset", "subset", "split", "origin", "url", "license",
    "author", "model", "model_name", "score", "scores", "rating", "reward", "difficulty",
    "level", "lang", "language", "subject", "topic", "domain", "task", "task_id", "type",
    "tags", "tag", "label", "labels", "title", "name", "date", "created", "created_at",
    "timestamp", "version", "hash", "meta", "metadata", "extra_info", "info", "index", "idx",
    "row_idx", "question_id", "conversation_id", "conversation_hash", "custom_id", "uid",
    "uuid", "prompt_id", "message_id", "num_turns", "turn", "redacted", "toxic", "answer",
    "answers", "output", "outputs", "response", "responses", "completion", "completions",
    "chosen", "rejected", "reference", "references", "solution", "solutions", "ground_truth",
    "target", "targets", "gold", "rationale", "explanation", "canonical_solution", "test",
    "tests", "entry_point", "comment", "note", "notes", "remark", "remarks", "generator",
    "avg_score", "weight", "quality", "num_tokens", "length",
})  # fmt: skip
# Part of what a model was to be asked, under names that no chat template takes.
_CHANGES_PROMPT = {
    "functions": 'the older form of tools; write "tools": [{"type": "function", "function": …}]',
    "function_call": "no part of a prompt here; remove it",
    "tool_choice": "no part of a prompt here; remove it",
    "response_format": "no part of a prompt here; remove it",
    "chat_template": "the target's own template is used; remove it",
    "chat_template_kwargs": "one value for all rows: set workload.chat_template_kwargs",
    "add_generation_prompt": "a prompt always ends where the answer begins; remove it",
    "continue_final_message": "a prompt always ends where the answer begins; remove it",
    "body": 'a batch request of OpenAI\'s; keep its body: {"messages": […]}',
    "images": "targets here read text alone",
    "image": "targets here read text alone",
    "audio": "targets here read text alone",
    "audios": "targets here read text alone",
    "video": "targets here read text alone",
    "videos": "targets here read text alone",
}
# Texts that belong to a question in the data sets that have them; a single word counts too.
_PARTS = frozenset({
    "input", "inputs", "context", "contexts", "passage", "passages", "document", "article",
    "prefix", "suffix", "examples", "few_shot", "fewshot", "choices", "options", "history",
    "persona", "developer", "developer_prompt", "instructions", "query", "text", "content",
    "user", "assistant", "system_message", "knowledge", "evidence", "hint", "hints", "table",
    "code", "schema", "user_prompt", "function_description", "stop",
})  # fmt: skip
_PART_OF_TEXT = (
    'it would be left out of the prompt; write it into the text, {{"prompt": "<{name}>\\n\\n<the'
    ' rest>"}}, or remove it'
)
_TURN_METADATA = frozenset({
    "id", "index", "turn", "timestamp", "created_at", "date", "model", "source", "weight",
    "train", "loss", "loss_weight", "lang", "score", "tool_call_id", "language", "toxic",
    "redacted", "conversation_id", "finish_reason",
})  # fmt: skip


@dataclass(frozen=True)
class Text:
    """One prompt before it is tokenised.

    Attributes:
        id: Unique within the workload.
        category: Workload class.
        messages: A conversation whose last turn is to be answered.
        variables: What the row gives the chat template beside it: `tools`, `documents`.
        notes: What of the row is not sent, in words.
    """

    id: str
    category: str
    messages: tuple[Turn, ...]
    variables: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()


def read_row(row: Row, where: str, category: str, only_column: str = "") -> Text:
    """Return a row's prompt.

    Args:
        row: An object with one prompt: `prompt`, `question` or `instruction` as a text, `messages`
            or ShareGPT's `conversations`, or one text in `turns`; optionally with `system`,
            `tools`, `documents`, `id`, `category` and what a data set says of its rows.
        where: The row's place, for messages and as its id where it has none.
        category: The class of a row that names none.
        only_column: The field that the user chose as the prompt; other texts are then no prompt.

    Raises:
        ValueError: There is no prompt in it, or something that would change it is not read;
            naming place, field and the conversion.
    """
    _check_characters(row, where)
    prompts = (*_TEXTS, *_CONVERSATIONS)
    row = {k: v for k, v in row.items() if not _is_empty(v) or (k in prompts and v is not None)}
    _refuse_token_ids(row, where)
    key = only_column or _prompt_field(row, where)
    turns, notes = _turns(row.get(key), key, where, only_column)
    system = [name for name in _SYSTEM if name in row and name != key]
    turns = _with_system(turns, row, system, where)
    used = {key, *system, *VARIABLES}
    unused = list(_unused(row, used, where, bool(only_column)))
    if unused:
        notes = (*notes, f"not sent of the rows: {', '.join(unused)}")
    _check_turns(turns, key, where)
    return Text(
        id=_label(row, "id", where, where),
        category=_label(row, "category", category, where),
        messages=tuple(turns),
        variables={name: row[name] for name in VARIABLES if name in row and name != key},
        notes=notes,
    )


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (list, dict)) and not value)


def _check_characters(row: Row, where: str) -> None:
    """Refuse what no tokenizer takes: half a character, a text without end, a bottomless row."""
    check_depth(row, where)
    text = json.dumps(row, ensure_ascii=False, default=str)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(
            f"{where}: {half} is half of a character (a lone surrogate); remove it, or write the"
            " character whole"
        ) from None
    if len(text) > MAX_CHARACTERS:
        raise ValueError(
            f"{where}: {len(text)} characters in one row, more than any context holds; a row is one"
            " prompt"
        )


def _refuse_token_ids(row: Row, where: str) -> None:
    given = [name for name in _TOKEN_FIELDS if name in row and not isinstance(row[name], int)]
    if given or any(_is_token_ids(row.get(name)) for name in (*_TEXTS, *_CONVERSATIONS)):
        raise ValueError(
            f"{where}: token ids instead of text; random tokens flatter or starve drafters, so"
            ' accept length is measured on text only: give {"prompt": "..."}'
        )


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, int) for item in value)


def _prompt_field(row: Row, where: str) -> str:
    """Return the one field that holds the prompt.

    Raises:
        ValueError: None or several do.
    """
    found = [name for name in (*_TEXTS, *_CONVERSATIONS) if name in row]
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(
            f'{where}: needs either "prompt" or "messages", not {" and ".join(found)}: which of'
            " them is the prompt? Keep one"
        )
    held = ", ".join(row) or "nothing"
    raise ValueError(
        f'{where}: needs either "prompt" or "messages"; found {held}; rename the field that is the'
        ' prompt: {"prompt": "…"} or {"messages": [{"role": "user", "content": "…"}]}'
    )


def _turns(
    value: Any, key: str, where: str, chosen: str = ""
) -> tuple[list[Turn], tuple[str, ...]]:
    """Return a prompt as messages in OpenAI's form, and what of it is not sent."""
    if isinstance(value, str) and (key in _TEXTS or chosen):
        return [{"role": "user", "content": value}], ()
    of_texts = isinstance(value, list) and bool(value) and all(isinstance(t, str) for t in value)
    if of_texts and (key == "turns" or chosen):
        if len(value) == 1:
            return [{"role": "user", "content": value[0]}], ()
        raise ValueError(
            f'{where}: "{key}" holds {len(value)} questions without the answers between them (the'
            ' form of MT-bench); give the first as {"prompt": "…"}, or the whole conversation,'
            ' answers included, as "messages"'
        )
    if not isinstance(value, list):
        what = 'a prompt is a text, a message {"role": …, "content": …}'
        more = "" if key == "prompt" else f'; "{key}" must be a list with at least one message'
        raise ValueError(f"{where}: {what}{more}")
    if is_turns(value) and all("from" in turn and "role" not in turn for turn in value):
        return _of_sharegpt(value, key, where)
    turns = [_turn(turn, number, where) for number, turn in enumerate(value, 1)]
    return turns, ()


def _of_sharegpt(value: list[Any], key: str, where: str) -> tuple[list[Turn], tuple[str, ...]]:
    """Return ShareGPT's turns as messages; the recorded answer at the end is the target's to give.

    Raises:
        ValueError: A turn is of somebody or something that has no plain counterpart.
    """
    turns = []
    for number, turn in enumerate(value, 1):
        who, text = turn["from"], turn.get("value")
        if not isinstance(who, str) or who not in _SHAREGPT or not isinstance(text, str):
            raise ValueError(
                f'{where}: turn {number} of "{key}" (ShareGPT conversations) is'
                f' {{"from": {who!r}, "value": {type(text).__name__}}}; write the conversation as'
                ' "messages" of {"role": …, "content": …}'
            )
        rest = {k: v for k, v in turn.items() if k not in ("from", "value")}
        turns.append(_turn({"role": _SHAREGPT[who], "content": text, **rest}, number, where))
    if turns[-1]["role"] != "assistant":
        return turns, ()
    return turns[:-1], (
        "not sent: the last answer of a ShareGPT conversation, the target's to give",
    )


def _turn(turn: Any, number: int, where: str) -> Turn:
    """Return one message with its fields checked; nulls, which tables fill in, are left out."""
    if not isinstance(turn, dict) or not isinstance(turn.get("role"), str):
        raise ValueError(f'{where}: a prompt is a text, a message {{"role": …, "content": …}}')
    out = {k: v for k, v in turn.items() if not _is_empty(v) and k not in _TURN_METADATA}
    out |= {k: turn[k] for k in ("tool_call_id",) if k in turn}
    calls = out.get("tool_calls")
    content = turn.get("content")
    if content is None and calls:
        content = ""  # what only calls a tool says nothing
    out["content"] = _plain(content, number, where)
    if calls:
        out["tool_calls"] = [_call(call, number, where) for call in _listed(calls)]
    return out


def _plain(content: Any, number: int, where: str) -> str:
    """Return a message's text, which may be written as one part of type text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise ValueError(
            f'{where}: a prompt is a text, a message {{"role": …, "content": …}}; message {number}'
            f" has {'null' if content is None else type(content).__name__} content"
        )
    texts = []
    for part in content:
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        text = part.get("text") if isinstance(part, dict) else part
        if kind != "text" or not isinstance(text, str):
            raise ValueError(
                f"{where}: message {number} has a content part of type {kind}; targets here read"
                ' text alone: {"type": "text", "text": "…"}'
            )
        texts.append(text)
    if len(texts) > 1:
        raise ValueError(
            f"{where}: message {number} has {len(texts)} content parts, which chat templates join"
            ' differently; write them as one text: {"content": "…"}'
        )
    return texts[0]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _call(call: Any, number: int, where: str) -> Any:
    """Return a tool call with its arguments as an object, as servers hand it to a template."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError(
            f'{where}: "tool_calls" of message {number} must be a list of'
            ' {"type": "function", "function": {"name": …, "arguments": {…}}}'
        )
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return call  # a text that is no JSON is what the model wrote
        plain = {**function, "arguments": arguments}
        return {**call, "function": plain} if "function" in call else plain
    return call


def _with_system(turns: list[Turn], row: Row, names: list[str], where: str) -> list[Turn]:
    """Return the turns behind the system prompt that stands beside them.

    Raises:
        ValueError: There are two, or it is no text.
    """
    for name in names:
        text = row[name]
        if not isinstance(text, str):
            raise ValueError(f'{where}: "{name}" must be a text')
        if not text.strip():
            continue
        if any(turn["role"] in ("system", "developer") for turn in turns):
            raise ValueError(
                f'{where}: "{name}" beside a conversation that has a system message; keep one'
            )
        turns = [{"role": "system", "content": text}, *turns]
    return turns


def _unused(row: Row, used: set[str], where: str, chosen: bool) -> Iterator[str]:
    """Yield the fields that are not sent and say so of themselves.

    Raises:
        ValueError: One could be a part of the prompt.
    """
    for key, value in row.items():
        name = key.strip().lower().replace("-", "_").replace(" ", "_")
        other = chosen and name in (*_TEXTS, *_CONVERSATIONS)  # the same prompt in another form
        if key in used or name in _METADATA or _is_empty(value) or not str(value).strip():
            continue
        if name in _CHANGES_PROMPT or name in (*VARIABLES, *_SYSTEM):
            reason = _CHANGES_PROMPT.get(name, f'write it as "{name}"')
            raise ValueError(f'{where}: "{key}" would change the prompt and is not read: {reason}')
        if other or (name not in _PARTS and (chosen or not _could_be_prompt(value))):
            yield key
            continue
        raise ValueError(
            f'{where}: "{key}" may be a part of the prompt and is not read:'
            f" {_PART_OF_TEXT.format(name=key)}"
        )


def _could_be_prompt(value: Any) -> bool:
    """Return whether a text stands anywhere in a value of unknown name; a label is one word."""
    if isinstance(value, str):
        word = value.isascii() and len(value.split()) == 1  # many scripts write without spaces
        return not (word and (len(value) <= MAX_LABEL or value.startswith("http")))
    if isinstance(value, dict):
        return any(map(_could_be_prompt, value.values()))
    return isinstance(value, list) and any(map(_could_be_prompt, value))


def _check_turns(turns: list[Turn], key: str, where: str) -> None:
    """Refuse a conversation that asks nothing: the last turn is the user's or a tool's."""
    if not turns:
        raise ValueError(f'{where}: "{key}" must be a list with at least one message')
    last = turns[-1]
    if last["role"] not in ("user", "tool"):
        raise ValueError(
            f"{where}: the last message is the {last['role']}'s, not the user's; leave out the"
            " answer that the target is to give"
        )
    if not last["content"].strip():
        raise ValueError(f"{where}: the prompt is empty")


def _label(row: Row, name: str, default: str, where: str) -> str:
    """Return an optional short text or number of a row."""
    value = row.get(name)
    if value is None:
        return default
    if not isinstance(value, (str, int)) or not str(value).strip():
        raise ValueError(f'{where}: "{name}" must be a non-empty text or a number')
    return str(value)
