"""Known faults of drafters, verify backends and set-ups, each as a rule with its public source."""

from __future__ import annotations

from pipeline.judge.comparison import paired_baseline
from pipeline.measure.wording import bare_label, number, percent
from pipeline.record.record import CellRecord
from pipeline.roi.advisor.cell_view import Rule, Seen
from pipeline.roi.levers.accept_length import best_width
from pipeline.roi.public_figures import CROSSOVER_SOURCE, EAGLE3_ACCEPT

FUSED_NOISE = 1.05  # on a CPU, fusing moves a step by less
SHARE = 0.99  # of verify steps that must be replayed from a capture
HOST_BOUND = 0.75  # captured over eager verify time
DEAR_ROWS = 1.5  # captured verify over captured plain forward
LONGER = 1.2  # break-even of the longer half of the prompts over that of the shorter
DEAR = 1.3  # verify over a plain forward
BROKEN = 1.1  # accept length at which a trained drafter might as well not be there
DRAFT_SHARE = 0.25  # of the step
LOOPS = 0.2  # share of prompts whose response ends in a loop
OFF = ("", "none", "null", "false", "unquant")
ARGUMENTS = "https://docs.sglang.ai/advanced_features/server_arguments.html"


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


def wide_tree(seen: Seen) -> str:
    """A tree on a machine where more rows are dear."""
    levers = seen.levers
    if levers is None or not seen.is_tree or levers.accept_length >= levers.break_even:
        return ""
    if levers.verify_ms < DEAR * levers.decode_ms:
        return ""
    return (
        f"a tree of width {levers.width} costs {number(levers.verify_ms / levers.decode_ms)} plain"
        f" forwards and breaks even at {levers.break_even:.2f}, accept length is"
        f" {levers.accept_length:.2f}: narrow the tree first, a chain before anything else"
    )


def copying_on_prose(seen: Seen) -> str:
    """A drafter that copies, on text that does not repeat itself."""
    if (
        not seen.abilities.copies_text
        or seen.measurement is None
        or seen.is_held
        or not seen.cheapest
    ):
        return ""
    lost = [
        f"{name} ({figures.versus.speed_up.value:.2f}x, a draft in"
        f" {percent(figures.draft_hit_rate)} of the steps)"
        for name, figures in seen.measurement.classes.items()
        if figures.versus and figures.versus.speed_up.high < 1
    ]
    if not lost:
        return ""
    return (
        f"the drafter copies, and {', '.join(lost)} has little to copy: serve it on other classes"
    )


def too_long(seen: Seen) -> str:
    """Draft tokens whose acceptance does not pay for their row."""
    levers, measurement = seen.levers, seen.measurement
    if levers is None or measurement is None or not seen.cheapest:
        return ""
    if seen.is_tree or seen.is_held or levers.width <= 2:
        return ""
    figures, drafts = measurement.overall, levers.width - 1
    row = max((figures.verify_ms - levers.decode_ms) / drafts, 0.0)
    draft = 0.0 if seen.abilities.copies_text else figures.draft_ms / drafts
    fixed = levers.step_ms - drafts * (row + draft)
    best = best_width(figures.accept_rate, fixed, row, draft)
    if best >= levers.width:
        return ""
    rate = figures.accept_rate[best - 1]
    return (
        f"at {number(row + draft)} ms a further token, position {best} is accepted in"
        f" {percent(rate)} of the steps that reach it: by these rates width {best} is the fastest,"
        f" not {levers.width}"
    )


def dear_draft(seen: Seen) -> str:
    """A drafter that accepts well and takes the gain itself."""
    levers, measurement = seen.levers, seen.measurement
    if levers is None or measurement is None:
        return ""
    share = measurement.overall.draft_ms / levers.step_ms
    without = levers.accept_length / (
        (levers.step_ms - measurement.overall.draft_ms) / levers.ms_per_token
    )
    if share < DRAFT_SHARE or without < 1 or levers.accept_length >= levers.break_even:
        return ""
    return (
        f"drafting takes {percent(share)} of the step; with drafts for nothing it would be"
        f" {without:.2f}x: capture the drafter, or compare each drafter at its own best width"
    )


def broken_drafter(seen: Seen) -> str:
    """A trained drafter that is never right."""
    levers = seen.levers
    if levers is None or seen.abilities.copies_text or seen.is_held or levers.width < 2:
        return ""
    if levers.accept_length > BROKEN:
        return ""
    return (
        f"accept length {levers.accept_length:.2f} of a trained drafter: suspect its vocabulary map"
        " or weights before its data; audit the map with `python -m drafters.vocab`, and never"
        " record this cell as a reference"
    )


def loops(seen: Seen) -> str:
    """Responses that end in a loop, which every drafter guesses."""
    if seen.measurement is None or seen.measurement.looping_share <= LOOPS:
        return ""
    return (
        f"{percent(seen.measurement.looping_share)} of the prompts end in a loop: they are left out"
        " of every cell, so choose other prompts or fewer tokens"
    )


def setting(record: CellRecord | None, name: str) -> str:
    """Return a server's setting in lower case: what it resolved, else its own command's flag.

    Args:
        record: A cell, or None.
        name: The setting with underscores.

    Returns:
        The value; `true` for a flag without one; "" if nothing says.
    """
    if record is None:
        return ""
    if name in record.settings:
        return record.settings[name].lower()
    words = record.settings.get("server_command", "").split()
    flag = "--" + name.replace("_", "-")
    if flag not in words:
        return ""
    rest = words[words.index(flag) + 1 :]
    return rest[0].lower() if rest and not rest[0].startswith("--") else "true"


def inherited_quantization(seen: Seen) -> str:
    """A draft model that is quantised as its target is, and accepts little."""
    levers = seen.levers
    kind = setting(seen.record, "quantization")
    if levers is None or seen.abilities.copies_text or levers.width < 2 or kind in OFF:
        return ""
    explicit = setting(seen.record, "speculative_draft_model_quantization")
    if explicit or levers.accept_length > EAGLE3_ACCEPT[0]:
        return ""
    return (
        f"accept length {levers.accept_length:.2f} with quantization={kind} and none set for the"
        " draft, which inherits it: pass --speculative-draft-model-quantization unquant"
    )


def above_captured_sizes(seen: Seen) -> str:
    """A running batch above the sizes that were captured."""
    sizes = [
        int(word) for word in setting(seen.record, "captured_batches").split(",") if word.isdigit()
    ]
    batch = seen.record.batch
    proof = seen.record.proof
    if not sizes or proof is None or batch <= max(sizes) or proof.graph_share >= 1:
        return ""
    return (
        f"{batch} requests run and sizes up to {max(sizes)} are captured, so"
        f" {percent(1 - proof.graph_share)} of the steps were eager: capture at least {batch}"
    )


def capped_requests(seen: Seen) -> str:
    """A speculative cell that may run fewer requests than its baseline."""
    if seen.record.is_baseline or seen.best is None:
        return ""
    own, base = (setting(r, "max_running_requests") for r in (seen.record, seen.best))
    if not own.isdigit() or own == base:
        return ""
    limit = base if base.isdigit() else "no limit"
    return (
        f"max_running_requests is {own} with the drafter and {limit} in the baseline: engines lower"
        " it silently for speculation; set it in every cell"
    )


def lost_overlap(seen: Seen) -> str:
    """Speculation that switched off overlap scheduling, which the baseline keeps."""
    own, base = (setting(r, "disable_overlap_schedule") for r in (seen.record, seen.best))
    if seen.record.is_baseline or own != "true" or base == "true":
        return ""
    return (
        "overlap scheduling is off with the drafter and on in the baseline: part of the loss is the"
        " scheduler's, not the drafter's"
    )


RULES = (
    Rule("left the graph", "https://github.com/vllm-project/vllm/issues/40608", left_the_graph),
    Rule("host bound", "https://github.com/kekzl/imp/pull/856", host_bound),
    Rule("fused loses", CROSSOVER_SOURCE, fused_loses),
    Rule("fused fell back", "https://github.com/vllm-project/vllm/pull/47751", fell_back),
    Rule("dear rows", "https://github.com/Tencent/AngelSlim/issues/163", dear_rows),
    Rule("long context", "https://github.com/sgl-project/sglang/issues/6783", long_context),
    Rule("wide tree", "https://github.com/sgl-project/SpecForge/issues/164", wide_tree),
    Rule("copying on prose", "https://github.com/vllm-project/vllm/issues/16258", copying_on_prose),
    Rule("draft too long", "https://github.com/vllm-project/vllm/issues/21278", too_long),
    Rule("dear draft", "https://github.com/vllm-project/vllm/issues/20780", dear_draft),
    Rule("broken drafter", "https://github.com/sgl-project/SpecForge/pull/534", broken_drafter),
    Rule("loops", "https://github.com/Blackwellboy/model-serving-minefield/issues/108", loops),
    Rule("draft inherits quantisation", ARGUMENTS, inherited_quantization),
    Rule("above captured sizes", ARGUMENTS, above_captured_sizes),
    Rule("capped requests", ARGUMENTS, capped_requests),
    Rule("lost overlap", "https://github.com/sgl-project/sglang/issues/12411", lost_overlap),
)
