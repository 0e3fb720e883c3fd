"""Known faults of verify backends: eager, out of the graph, fused where it loses, dear rows."""

from __future__ import annotations

from pipeline.judge.comparison import paired_baseline
from pipeline.measure.wording import bare_label, number, percent
from pipeline.roi.advisor.cell_view import Rule, Seen
from pipeline.roi.public_figures import CROSSOVER_SOURCE

FUSED_NOISE = 1.05  # on a CPU, fusing moves a step by less
SHARE = 0.99  # of verify steps that must be replayed from a capture
HOST_BOUND = 0.75  # captured over eager verify time
DEAR_ROWS = 1.5  # captured verify over captured plain forward
LONGER = 1.2  # break-even of the longer half of the prompts over that of the shorter


def left_the_graph(seen: Seen) -> str:
    """A captured cell whose verify steps ran eagerly, as latent attention did on new GPUs."""
    proof = seen.record.proof
    if not seen.abilities.captures_verify or proof is None or proof.graph_share >= SHARE:
        return ""
    return (
        f"only {percent(proof.graph_share)} of the verify steps were replayed from a capture"
        f" (attention: {proof.attention}): choose an attention backend that captures verify, and"
        " do not call this cell captured"
    )


def host_bound(seen: Seen) -> str:
    """An eager verify that a capture has already beaten here."""
    if seen.abilities.captures_verify or seen.measurement is None:
        return ""
    eager_ms = seen.measurement.overall.verify_ms
    for record, measurement in seen.same_drafter():
        captured_ms = seen.comparable_verify_ms(record, measurement)
        slower = eager_ms / captured_ms
        if record.abilities.captures_verify and slower > seen.least(record) / HOST_BOUND:
            return (
                f"eager verify is {number(slower)} times the captured one"
                f" ({number(eager_ms)} against {number(captured_ms)} ms"
                f"{seen.interleaving(record)}): most of it is"
                f" calls and launches; compare drafters on {bare_label(record)} only"
            )
    return ""


def fused_loses(seen: Seen) -> str:
    """A fused all-reduce above the message size where it wins."""
    if not seen.abilities.fuses_allreduce or seen.measurement is None:
        return ""
    for record, measurement in seen.same_drafter():
        slower = seen.measurement.overall.verify_ms / seen.comparable_verify_ms(record, measurement)
        other = record.abilities
        captured = other.captures_verify and not other.fuses_allreduce
        if captured and slower > seen.least(record):
            if seen.shares_memory:
                return _fused_loses_on_a_cpu(slower)
            return (
                f"fused verify is {number(100 * (slower - 1))} % slower than captured"
                f"{seen.interleaving(record)} at width {seen.record.width}: the message is above"
                " the crossover (48 KiB on 8 PCIe GPUs); keep the fused kernel for plain decoding,"
                " or a narrower step"
            )
    return ""


def _fused_loses_on_a_cpu(slower: float) -> str:
    """Tell a difference that fusing cannot make from one that it does."""
    if slower < FUSED_NOISE:
        return ""
    return (
        f"fused verify is {number(100 * (slower - 1))} % slower than captured: over shared memory"
        " the two differ by about a microsecond a sum, so something held up a rank; measure again"
        " on an idle machine, with no more ranks than cores"
    )


def fell_back(seen: Seen) -> str:
    """A fused cell that ran no fused kernel."""
    proof = seen.record.proof
    if not seen.abilities.fuses_allreduce or proof is None or proof.fused_allreduces_per_step > 0:
        return ""
    return (
        f"no fused all-reduce ran ({proof.allreduce}, {proof.allreduces_per_step:g} a step): the"
        " flag was accepted and ignored; check the model, the GPU generation and peer access"
    )


def dear_rows(seen: Seen) -> str:
    """A captured verify whose rows cost far more than a plain forward."""
    levers = seen.levers
    if levers is None or not seen.abilities.captures_verify or levers.decode_ms <= 0:
        return ""
    ratio = levers.verify_ms / levers.decode_ms
    if ratio < DEAR_ROWS or levers.accept_length >= levers.break_even:
        return ""
    return (
        f"captured, {levers.width} rows still cost {number(ratio)} plain forwards: a mixture of"
        " experts reads more experts for more rows, a small machine computes more; fewer rows or a"
        " larger batch, not launches, is what helps"
    )


def long_context(seen: Seen) -> str:
    """A break-even that moves out of reach as prompts get longer."""
    if seen.measurement is None or seen.measurement.is_baseline or seen.best is None:
        return ""
    if seen.measurement.noisy:  # times of two halves would differ by what else ran
        return ""
    lengths = {p.prompt_id: p.num_prompt_tokens for p in seen.record.repetitions[0]}
    middle = sorted(lengths.values())[len(lengths) // 2]
    short = _break_even(seen, {k for k, n in lengths.items() if n < middle})
    long = _break_even(seen, {k for k, n in lengths.items() if n >= middle})
    if short is None or long is None or long < LONGER * short:
        return ""
    return (
        f"prompts from {middle} tokens on break even at {long:.2f}, shorter ones at {short:.2f}:"
        " measure by context and switch speculation off beyond the length where it stops paying"
    )


def _break_even(seen: Seen, prompts: set[str]) -> float | None:
    """Return the break-even accept length over some prompts, or None where a side has no step."""
    if seen.best is None:
        return None
    times = []
    for record in (seen.record, paired_baseline(seen.record, seen.best)):
        responses = [r for rep in record.repetitions for r in rep if r.prompt_id in prompts]
        steps = sum(len(r.step_ms) for r in responses)
        if not steps:
            return None
        times.append(sum(sum(r.step_ms) for r in responses) / steps)
    return times[0] / times[1]


RULES = (
    Rule("left the graph", "https://github.com/vllm-project/vllm/issues/40608", left_the_graph),
    Rule("host bound", "https://github.com/kekzl/imp/pull/856", host_bound),
    Rule("fused loses", CROSSOVER_SOURCE, fused_loses),
    Rule("fused fell back", "https://github.com/vllm-project/vllm/pull/47751", fell_back),
    Rule("dear rows", "https://github.com/Tencent/AngelSlim/issues/163", dear_rows),
    Rule("long context", "https://github.com/sgl-project/sglang/issues/6783", long_context),
)
