"""From raw rows to checked prompts: what a row may hold, token ids, lengths and the digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.target.tokenizer import Message, Tokenizer

if TYPE_CHECKING:
    pass


_TOKEN_FIELDS = ("input_ids", "token_ids", "prompt_token_ids", "tokens")


class Text(NamedTuple):
    """One prompt before it is tokenised.

    Attributes:
        id: Unique within the workload.
        category: Workload class.
        messages: A conversation whose last turn is to be answered.
    """

    id: str
    category: str
    messages: tuple[Message, ...]


def read_row(row: dict[str, Any], where: str, category: str) -> Text:
    """Return a row's prompt.

    Args:
        row: `{"prompt": text}` or `{"messages": [...]}`, optionally with `id` and `category`.
        where: The row's place, for messages and as its id where it has none.
        category: The class of a row that names none.

    Raises:
        ValueError: There is no prompt in it, naming the place.
    """
    _check_characters(row, where)
    prompt, messages = row.get("prompt"), row.get("messages")
    if (
        _is_token_ids(prompt)
        or _is_token_ids(messages)
        or any(row.get(name) is not None for name in _TOKEN_FIELDS)
    ):
        raise ValueError(
            f"{where}: token ids instead of text; random tokens flatter or starve drafters, so"
            ' accept length is measured on text only: give {"prompt": "..."}'
        )
    if (prompt is None) == (messages is None):
        raise ValueError(f'{where}: needs either "prompt" or "messages", not both or neither')
    turns = [{"role": "user", "content": prompt}] if messages is None else messages
    return Text(
        id=_label(row, "id", where, where),
        category=_label(row, "category", category, where),
        messages=_conversation(turns, where),
    )


def tokenise(texts: Iterable[Text], tokenizer: Tokenizer) -> tuple[Prompt, ...]:
    """Return the prompts with the target's chat template applied.

    Raises:
        ValueError: Two share an id, or the template refuses one.
    """
    prompts: dict[str, Prompt] = {}
    for text in texts:
        if text.id in prompts:
            raise ValueError(f"workload: two prompts have the id {text.id!r}; ids must be unique")
        try:
            tokens = tokenizer.chat(text.messages)
        except ValueError as error:
            raise ValueError(f"{text.id}: {error}") from None
        prompts[text.id] = Prompt(text.id, text.category, tokens)
    return tuple(prompts.values())


def check_lengths(prompts: Sequence[Prompt], max_positions: int, max_new_tokens: int) -> None:
    """Refuse prompts that leave no room for their answer.

    Args:
        prompts: The workload's prompts.
        max_positions: The context of the target in its engine, in tokens.
        max_new_tokens: Longest answer, in tokens.

    Raises:
        ValueError: The longest one does not fit, naming it.
    """
    longest = max(prompts, key=lambda prompt: len(prompt.tokens))
    room = max_positions - max_new_tokens
    if len(longest.tokens) > room:
        raise ValueError(
            f"workload: prompt {longest.id} has {len(longest.tokens)} tokens, and the"
            f" context of {max_positions} leaves {max(room, 0)} beside"
            f" sampling.max_new_tokens={max_new_tokens}; shorten either"
        )


def check_draft(prompts: Sequence[Prompt], room: int, max_new: int, num_drafts: int) -> None:
    """Refuse more draft tokens than fit behind the longest prompt and its answer.

    Args:
        prompts: The workload's prompts.
        room: The context of the target in its engine, in tokens.
        max_new: Longest answer, in tokens.
        num_drafts: Draft tokens of a step, as a chain or a tree.

    Raises:
        ValueError: They do not fit; the text names the largest number that does.
    """
    longest = max(prompts, key=lambda prompt: len(prompt.tokens))
    most = room - len(longest.tokens) - max_new
    if num_drafts > most:
        raise ValueError(
            f"drafter.num_draft_tokens={num_drafts}: the context of {room} tokens has room for"
            f" {max(most, 0)} draft tokens beside prompt {longest.id} of"
            f" {len(longest.tokens)} tokens and sampling.max_new_tokens={max_new};"
            f" {f'set it to {most} or less' if most > 0 else 'lower the latter'}"
        )


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """Return the identity of a workload's prompts: 12 hex digits over ids, classes and tokens."""
    text = json.dumps([[p.id, p.category, p.tokens] for p in prompts])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _check_characters(row: dict[str, Any], where: str) -> None:
    """Refuse half a character: JSON can escape it, but no tokenizer or file takes it."""
    try:
        json.dumps(row, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(
            f"{where}: {half} is half of a character (a lone surrogate); remove it, or write the"
            " character whole"
        ) from None


def _is_token_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, int) for item in value)


def _label(row: dict[str, Any], field: str, default: str, where: str) -> str:
    """Return an optional short text or number of a row."""
    value = row.get(field)
    if value is None:
        return default
    if not isinstance(value, (str, int)) or not str(value).strip():
        raise ValueError(f'{where}: "{field}" must be a non-empty text or a number')
    return str(value)


def _conversation(turns: Any, where: str) -> tuple[Message, ...]:
    """Return checked turns: the last is the user's, and none of the user's is empty."""
    if not isinstance(turns, list) or not turns:
        raise ValueError(f'{where}: "messages" must be a list with at least one message')
    for turn in turns:
        fields = (turn.get("role"), turn.get("content")) if isinstance(turn, dict) else (None,)
        if not all(isinstance(field, str) for field in fields):
            raise ValueError(f'{where}: a prompt is a text, a message {{"role": …, "content": …}}')
    if turns[-1]["role"] != "user":
        raise ValueError(f"{where}: the last message is the {turns[-1]['role']}'s, not the user's")
    if not turns[-1]["content"].strip():
        raise ValueError(f"{where}: the prompt is empty")
    return tuple(Message(role=turn["role"], content=turn["content"]) for turn in turns)


@dataclass(frozen=True)
class Prompt:
    """One prompt, ready for the engine.

    Attributes:
        id: Unique within the workload.
        category: Workload class: `chat`, `code`, `math`, `copy`, or a user's own.
        tokens: Token ids, chat template applied.
    """

    id: str
    category: str
    tokens: tuple[int, ...]
