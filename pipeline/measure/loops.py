"""Responses whose tail is a loop: they flatter every drafter, so their prompts are left out.

A small model at temperature 0 often ends in a loop that only the length limit stops; an n-gram
drafter then has nearly every token accepted. Only exact repetition counts: a numbered list that
says the same with other numbers, a table, or code with similar lines is the model's honest output.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.record.record import CellRecord

MIN_PERIODS = 3  # twice may be a chorus, a quotation or a repeated line of code
MIN_TOKENS = 24  # a rule, an indent or a row of zeros may repeat a few tokens often


def loop_period(tokens: Sequence[int]) -> int:
    """Return the period of the loop at the end, in tokens, or 0 if the end is no loop.

    A loop is at least `MIN_PERIODS` exact periods that cover at least `MIN_TOKENS` tokens and
    reach the last token.
    """
    for period in range(1, len(tokens) // MIN_PERIODS + 1):
        length = period
        while length < len(tokens) and tokens[-length - 1] == tokens[period - length - 1]:
            length += 1
            if length >= max(MIN_TOKENS, MIN_PERIODS * period):
                return period
    return 0


def looping_prompts(record: CellRecord) -> frozenset[str]:
    """Return the ids of the prompts whose response ends in a loop in any repetition.

    The stop token of a response that ended by itself is not part of the tail. Where the accept
    length is held, no text is the target's and none is looked at.
    """
    if record.held_accept_length:
        return frozenset()
    return frozenset(
        response.prompt_id
        for responses in record.repetitions
        for response in responses
        if loop_period(response.tokens[:-1] if response.finish == "stop" else response.tokens)
    )
