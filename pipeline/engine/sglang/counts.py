"""Turn a server's reply and the plugin's steps into a response, every count checked twice.

SGLang itself counts per request, not per step: `spec_verify_ct`, `spec_num_correct_drafts` and a
histogram. The plugin sees each step's tokens; the two must agree, or the response is refused.
Accept length is `1 + correct / verify_ct`; SGLang's own figure counts the token that prefill
samples and is not used. Streamed chunks are never counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import StrictInt, TypeAdapter, ValidationError

from pipeline.cell.response import Response, num_equal
from pipeline.config.messages import folded
from pipeline.engine.sglang.versions import DEVICE_TIMER
from pipeline.workload.prompts import Prompt
from verify.sglang_plugin import RECORDS

MOST_CORRECT = 65_536  # accepted draft tokens of a step that are still told one by one
TIMER_TOLERANCE = 0.1  # captured: SGLang's timer starts inside ours and leaves little out,
TIMER_SLACK_MS = 0.3  # at most what the host does between the two marks while the device is idle
TIMER_LEAST_STEPS = 50  # below, a step that one of the clocks has not reported yet weighs too much


class Miscount(RuntimeError):
    """A server's counts contradict each other."""


@dataclass(frozen=True)
class _Finish:
    type: str


@dataclass(frozen=True)
class _Meta:
    """What is read of a reply's `meta_info`, with the types that SGLang gives it."""

    finish_reason: _Finish | None
    completion_tokens: StrictInt
    cached_tokens: StrictInt | None
    num_retractions: StrictInt | None
    spec_verify_ct: StrictInt = 0
    spec_num_correct_drafts: StrictInt = 0
    spec_correct_drafts_histogram: tuple[StrictInt, ...] = ()


@dataclass(frozen=True)
class _Generated:
    """What is read of a reply of `/generate`."""

    output_ids: tuple[StrictInt, ...]
    meta_info: _Meta


def check_reply(reply: Any) -> None:
    """Refuse a reply that is not as SGLang gives it.

    Raises:
        Miscount: Naming the first field that is missing or of another type.
    """
    try:
        TypeAdapter(_Generated).validate_python(reply)
    except ValidationError as error:
        raise Miscount(f"/generate answered no sound reply: {_first_fault(error)}") from None


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False)[0]
    return folded(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}")


class Reply(NamedTuple):
    """One prompt's reply.

    Attributes:
        rid: Request id, as sent.
        reply: JSON of `/generate`.
        wall_ms: From sending to the whole reply.
        others_cpu: As in `Response`.
    """

    prompt: Prompt
    rid: str
    reply: dict[str, Any]
    wall_ms: float
    others_cpu: float


def response(
    answer: Reply, records: Records, proposed: int, depth: int, margins: tuple[float, ...]
) -> Response:
    """Return a reply as the seam wants it.

    Args:
        answer: The reply.
        records: The steps since the last flush; the request's are found by its id.
        proposed: Draft tokens of every step; SGLang pads to this number.
        depth: Longest path of every draft.
        margins: As in `Response`.

    Raises:
        Miscount: Reply and steps contradict each other.
    """
    tokens = _checked_tokens(answer)
    steps = records.of(answer.rid)
    committed = [step.committed[answer.rid] for step in steps]
    _check_against_meta(committed, answer.reply["meta_info"])
    times = [records.first_s.get(answer.rid, 0.0), *(step.at_s for step in steps)]
    decode_ms = (times[-1] - times[0]) * 1e3
    if not 0 <= decode_ms <= answer.wall_ms:
        raise Miscount(
            f"prompt {answer.prompt.id}: decoding took {decode_ms:.1f} ms by the scheduler's clock,"
            f" {answer.wall_ms:.1f} ms passed here"
        )
    return Response(
        prompt_id=answer.prompt.id,
        category=answer.prompt.category,
        num_prompt_tokens=len(answer.prompt.tokens),
        tokens=tokens,
        margins=margins,
        committed=_cut(committed, len(tokens) - 1),
        proposed=(proposed,) * len(steps),
        depth=(depth,) * len(steps),
        verify_ms=tuple(step.verify_ms for step in steps),
        draft_ms=tuple(step.draft_ms for step in steps),
        step_ms=tuple((b - a) * 1e3 for a, b in pairwise(times)),
        prefill_ms=answer.wall_ms - decode_ms,
        decode_ms=decode_ms,
        finish=str(answer.reply["meta_info"]["finish_reason"]["type"]),
        others_cpu=answer.others_cpu,
    )


def margins(reply: dict[str, Any]) -> tuple[float, ...]:
    """Return best minus second best of each output token, from the two largest log-probabilities.

    Their difference is that of the logits: the same number is taken from both.

    Raises:
        Miscount: The reply does not hold them.
    """
    try:
        pairs = reply["meta_info"]["output_top_logprobs"]
        return tuple(float(two[0][0]) - float(two[1][0]) for two in pairs)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        raise Miscount("/generate answered without two log-probabilities of each token") from None


def margins_shared(
    noted: Sequence[int], margins: tuple[float, ...], tokens: Sequence[int]
) -> tuple[float, ...]:
    """Return the margins of an answer that was noted, as far as they are another answer's too.

    That is up to and with the token where the two part: what led there was the same.
    """
    return margins[: num_equal(noted, tokens) + 1]


def cached_tokens(answers: Sequence[Reply]) -> int:
    """Count prompt tokens that were not computed."""
    return sum(int(a.reply["meta_info"]["cached_tokens"] or 0) for a in answers)


def retractions(answers: Sequence[Reply]) -> int:
    """Count requests that the server threw out and began again for want of memory."""
    return sum(int(a.reply["meta_info"]["num_retractions"] or 0) for a in answers)


def device_seconds(page: str) -> dict[str, float]:
    """Read SGLang's device timer, seconds by kind of forward, from its Prometheus page.

    Every rank of a tensor-parallel server reports the same forwards; the first one's count.
    """
    out: dict[str, float] = {}
    pattern = rf"^{re.escape(DEVICE_TIMER)}\{{(.*)\}} (\S+)$"
    for text, seconds in re.findall(pattern, page, re.MULTILINE):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', text))
        if labels.get("tp_rank", "0") == "0" and "category" in labels:
            category = labels["category"]
            out[category] = out.get(category, 0.0) + float(seconds)
    return out


def timer_disagreement(steps: Sequence[StepRecord], seconds: float) -> str:
    """Say that our clock and SGLang's own tell different times of the same forwards, or "".

    Args:
        steps: Steps of one mode.
        seconds: What SGLang's timer gained meanwhile; 0 where it does not run.

    SGLang leaves the planning of an eager forward out, so that only captured steps must agree.
    """
    ours = sum(step.verify_ms for step in steps) / 1e3
    if len(steps) < TIMER_LEAST_STEPS or not seconds:
        return ""
    eager = not all(step.graph for step in steps)
    slack = max(ours * TIMER_TOLERANCE, len(steps) * TIMER_SLACK_MS / 1e3)
    if seconds > ours * (1 + TIMER_TOLERANCE) or (not eager and seconds < ours - slack):
        return (
            f"the plugin timed {ours:.3f} s of target forwards, SGLang's device timer"
            f" {seconds:.3f} s"
        )
    return ""


def _checked_tokens(answer: Reply) -> tuple[int, ...]:
    """Return the tokens of a whole answer."""
    tokens, meta = tuple(answer.reply["output_ids"]), answer.reply["meta_info"]
    finish = meta["finish_reason"]
    if finish is None or finish["type"] not in ("stop", "length"):
        raise Miscount(f"prompt {answer.prompt.id} ended with {finish}")
    if len(tokens) != meta["completion_tokens"]:
        raise Miscount(f"{len(tokens)} tokens came back, {meta['completion_tokens']} were counted")
    return tokens


def _check_against_meta(committed: Sequence[int], meta: dict[str, Any]) -> None:
    """Refuse steps that do not add up to SGLang's own counts."""
    if "spec_verify_ct" not in meta:
        if any(count != 1 for count in committed):
            raise Miscount("plain decoding committed several tokens in a step")
        return
    correct = [count - 1 for count in committed]
    histogram = list(meta["spec_correct_drafts_histogram"])
    counted, most = Counter(correct), min(max(correct, default=-1), MOST_CORRECT)
    ours = [counted[index] for index in range(max(len(histogram), most + 1))]
    theirs = histogram + [0] * (len(ours) - len(histogram))
    counts = (len(correct), sum(correct))
    said = (meta["spec_verify_ct"], meta["spec_num_correct_drafts"])
    if counts != said or ours != theirs:
        raise Miscount(
            f"the plugin saw {counts[0]} steps with {counts[1]} accepted draft tokens {ours},"
            f" SGLang counted {said[0]} with {said[1]} {histogram}"
        )


def _cut(committed: Sequence[int], wanted: int) -> tuple[int, ...]:
    """Leave tokens past the stop out of the last step, so that the sum is what was kept.

    Raises:
        Miscount: More is missing than the last step can explain.
    """
    excess = sum(committed) - wanted
    if excess < 0 or (committed and excess >= committed[-1]) or (not committed and wanted):
        raise Miscount(
            f"steps committed {sum(committed)} tokens, {wanted} came back after the first"
        )
    return (*committed[:-1], committed[-1] - excess) if committed else ()


@dataclass(frozen=True)
class StepRecord:
    """One step of the scheduler; with several requests in flight they share it.

    Attributes:
        mode: `target_verify` or `decode`.
        batch: Requests in the step.
        graph: Whether the target's forward was replayed from a graph.
        verify_ms: Device time of the target's forward.
        draft_ms: Device time of the drafter, reading what was accepted included; n-gram look-up.
        at_s: When the scheduler had the result, on a clock of its own.
        committed: Tokens that each request got, by request id; draft tokens past a stop included.
    """

    mode: str
    batch: int
    graph: bool
    verify_ms: float
    draft_ms: float
    at_s: float
    committed: dict[str, int]


@dataclass(frozen=True)
class Records:
    """The steps between two flushes.

    Attributes:
        flush: Count of flushes of this server.
        lost: Steps whose result never came back.
        first_s: When each request had its first token, by request id.
    """

    flush: int
    lost: int
    first_s: dict[str, float]
    steps: tuple[StepRecord, ...]

    def of(self, rid: str) -> list[StepRecord]:
        """Return the steps that gave a request tokens."""
        return [step for step in self.steps if rid in step.committed]


def read_records(folder: Path, after: int) -> Records:
    """Read the records of the newest flush.

    Args:
        folder: Where the plugin writes.
        after: Count of the flush before it.

    Raises:
        RuntimeError: The plugin wrote nothing, or lost steps.
    """
    path = folder / RECORDS
    try:
        found = _RECORDS.validate_json(path.read_bytes()) if path.exists() else None
    except ValidationError as error:
        raise RuntimeError(f"the plugin's steps are damaged: {_first_fault(error)}") from None
    if found is None or found.flush <= after:
        raise RuntimeError(
            "the plugin wrote no steps at /flush_cache: it is not active in the server's scheduler"
        )
    if found.lost:
        raise RuntimeError(f"the plugin lost {found.lost} steps: their results never came back")
    return found


_RECORDS = TypeAdapter(Records)
