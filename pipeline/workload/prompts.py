"""From rows to checked prompts: token ids that hold the row's text, lengths and the digest."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.target.tokenizer import Tokenizer
from pipeline.workload.rows import Text, Turn

# Given by the prompt itself, not by a setting.
_OWN_VARIABLES = ("messages", "add_generation_prompt", "bos_token", "eos_token")


@dataclass(frozen=True)
class Prompt:
    """One prompt, ready for the engine.

    Attributes:
        id: Unique within the workload.
        category: Workload class: `chat`, `code`, `math`, `copy`, or a user's own.
        tokens: Token ids, chat template applied.
        notes: What a reader must know of it, such as what of its row is not sent.
    """

    id: str
    category: str
    tokens: tuple[int, ...]
    notes: tuple[str, ...] = ()


def tokenise(
    texts: Iterable[Text], tokenizer: Tokenizer, chat_template_kwargs: Mapping[str, Any]
) -> tuple[Prompt, ...]:
    """Return the prompts with the target's chat template applied.

    Args:
        texts: The rows' prompts.
        tokenizer: The target's.
        chat_template_kwargs: Variables that the template gets for every prompt.

    Raises:
        ValueError: Two share an id, the template refuses one, or something that a row holds is not
            in its prompt.
    """
    _check_variables(chat_template_kwargs, tokenizer)
    prompts: dict[str, Prompt] = {}
    for text in texts:
        if text.id in prompts:
            raise ValueError(f"workload: two prompts have the id {text.id!r}; ids must be unique")
        try:
            prompts[text.id] = _prompt(text, tokenizer, chat_template_kwargs)
        except ValueError as error:
            raise ValueError(f"{text.id}: {error}") from None
    return tuple(prompts.values())


def workload_note(prompts: Iterable[Prompt]) -> str:
    """Return what a reader must know of a workload's prompts, each thing once."""
    return "; ".join(dict.fromkeys(note for prompt in prompts for note in prompt.notes))


def _check_variables(kwargs: Mapping[str, Any], tokenizer: Tokenizer) -> None:
    """Refuse a variable that would change nothing.

    Raises:
        ValueError: The template does not read it, or it is not a setting's to give.
    """
    read = tokenizer.template_variables() - {*_OWN_VARIABLES}
    for name in kwargs:
        if name not in read:
            raise ValueError(
                f"workload.chat_template_kwargs.{name}: the target's chat template does not read"
                f" it; it reads {', '.join(sorted(read)) or 'none that can be set'}"
            )


def _prompt(text: Text, tokenizer: Tokenizer, kwargs: Mapping[str, Any]) -> Prompt:
    """Return one prompt, checked against its row.

    Raises:
        ValueError: Naming what would be lost.
    """
    if not tokenizer.has_template:
        return _continued(text, tokenizer)
    variables = {**kwargs, **text.variables}
    rendered = tokenizer.render(text.messages, variables)
    _check_fields(text, tokenizer, variables, rendered)
    tokens = tokenizer.encode(rendered)
    notes = [*text.notes, *_check_turns(text, rendered, _plain(tokenizer.decode(tokens)))]
    if kwargs:
        notes.append(f"chat template with {json.dumps(dict(kwargs), default=str)}")
    return Prompt(text.id, text.category, tokens, tuple(notes))


def _check_fields(
    text: Text, tokenizer: Tokenizer, variables: Mapping[str, Any], rendered: str
) -> None:
    """Refuse a field of the row that changes nothing, or is printed in part.

    Raises:
        ValueError: Naming it.
    """
    for without, fields in _left_out(text, variables):
        if _rendered(tokenizer, *without) == rendered:
            raise ValueError(
                f"{fields}, which the target's chat template does not print; remove it from the"
                " row, or choose a target that was trained with it"
            )
    for name in _names(text):
        if name not in rendered and json.dumps(name, ensure_ascii=False)[1:-1] not in rendered:
            raise ValueError(f"the chat template leaves out {name!r} of the row's tools or calls")


def _check_turns(text: Text, rendered: str, decoded: str) -> Iterator[str]:
    """Refuse a message whose text is not in the prompt; yield what templates leave out by design.

    Raises:
        ValueError: Naming the message and what lost it.
    """
    for number, turn in enumerate(text.messages, 1):
        content = turn["content"]
        if turn["role"] == "assistant" and "</think>" in content:
            thought, _, content = content.rpartition("</think>")
            if _plain(thought) not in decoded:
                yield "the chat template leaves out the thoughts of earlier answers"
        if _plain(content) not in decoded:
            where = "tokens" if content.strip() in rendered else "printed"
            raise ValueError(
                f"message {number}, the {turn['role']}'s, is not in the prompt as it was written:"
                f" {_missing(where)}"
            )


def _missing(where: str) -> str:
    """Say which of template and tokenizer lost a text."""
    if where == "printed":
        return "the target's chat template leaves it out or changes it"
    return "the target's tokenizer has no tokens for a part of it, or cuts it"


def _continued(text: Text, tokenizer: Tokenizer) -> Prompt:
    """Return the prompt of a base model: the text itself, which it continues.

    Raises:
        ValueError: The row holds more than one text.
    """
    fields = [*text.variables, *(k for turn in text.messages for k in turn.keys() - _PLAIN_TURN)]
    if len(text.messages) > 1 or fields:
        roles = ", ".join(turn["role"] for turn in text.messages)
        more = f" with {', '.join(fields)}" if fields else ""
        raise ValueError(
            f"{len(text.messages)} turns ({roles}){more} and the target has no chat template (it is"
            ' a base model): give the text to continue as {"prompt": "…"}, or choose a target with'
            " a chat template"
        )
    content = text.messages[0]["content"]
    tokens = tokenizer.encode(content, add_special_tokens=True)
    if _plain(content) not in _plain(tokenizer.decode(tokens)):
        raise ValueError(f"the text is not in the prompt: {_missing('tokens')}")
    note = "the target has no chat template: each prompt's text is sent as it is, to be continued"
    return Prompt(text.id, text.category, tokens, (*text.notes, note))


_PLAIN_TURN = {"role", "content", "tool_call_id"}  # the id only links two messages


def _left_out(
    text: Text, variables: Mapping[str, Any]
) -> Iterator[tuple[tuple[Sequence[Turn], Mapping[str, Any]], str]]:
    """Yield the conversation without each further thing that the row holds, and its name."""
    for name in text.variables:
        kept = {k: v for k, v in variables.items() if k != name}
        yield (text.messages, kept), f'the row has "{name}"'
    for number, turn in enumerate(text.messages):
        for name in turn.keys() - _PLAIN_TURN:
            less = {k: v for k, v in turn.items() if k != name}
            messages = [*text.messages[:number], less, *text.messages[number + 1 :]]
            null = "null content and " if name == "tool_calls" and not turn["content"] else ""
            yield (messages, variables), f'message {number + 1} has {null}"{name}"'


def _rendered(
    tokenizer: Tokenizer, messages: Sequence[Turn], variables: Mapping[str, Any]
) -> str | None:
    """Return what the template prints, or None where it refuses."""
    try:
        return tokenizer.render(messages, variables)
    except ValueError:
        return None


def _names(text: Text) -> Iterator[str]:
    """Yield the names of tools and of their parameters, and what the calls say."""
    for tool in text.variables.get("tools") or ():
        function = tool.get("function", tool) if isinstance(tool, dict) else {}
        yield from (
            function[k] for k in ("name", "description") if isinstance(function.get(k), str)
        )
        parameters = function.get("parameters")
        properties = parameters.get("properties") if isinstance(parameters, dict) else None
        yield from properties if isinstance(properties, dict) else ()
    for turn in text.messages:
        for call in turn.get("tool_calls", ()):
            function = call.get("function", call)
            yield function["name"]
            yield from _texts(function.get("arguments"))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a call's arguments, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _plain(text: str) -> str:
    """Return a text without what tokenizers may change: spaces, compatibility forms and case."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


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
