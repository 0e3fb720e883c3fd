"""Known faults of set-ups: what an engine changes silently when speculation is switched on."""

from __future__ import annotations

from pipeline.roi.advisor.seen import Rule, Seen
from pipeline.roi.public import EAGLE3_ACCEPT
from pipeline.wording import percent

OFF = ("", "none", "null", "false", "unquant")
CAPTURE_SIZES = ("cuda_graph_max_bs_decode", "cuda_graph_max_bs")
ARGUMENTS = "https://docs.sglang.ai/advanced_features/server_arguments.html"


def setting(seen: Seen, name: str) -> str:
    """Return what the engine resolved for a setting, in lower case, or ""."""
    return seen.record.settings.get(name, "").lower()


def inherited_quantization(seen: Seen) -> str:
    """A draft model that is quantised as its target is, and accepts little."""
    levers = seen.levers
    quantised = setting(seen, "quantization") not in OFF
    if levers is None or seen.is_ngram or levers.width < 2 or not quantised:
        return ""
    explicit = seen.record.settings.get("speculative_draft_model_quantization")
    if explicit is not None or levers.accept_length > EAGLE3_ACCEPT[0]:
        return ""
    kind = setting(seen, "quantization")
    return (
        f"accept length {levers.accept_length:.2f} with quantization={kind} and none set for the"
        " draft, which inherits it: pass"
        " --speculative-draft-model-quantization unquant"
    )


def above_captured_sizes(seen: Seen) -> str:
    """A running batch above the sizes that were captured."""
    sizes = [setting(seen, name) for name in CAPTURE_SIZES]
    captured = next((int(size) for size in sizes if size.isdigit()), None)
    batch = int(seen.record.params.get("parallelism.batch", "1"))
    proof = seen.record.proof
    if captured is None or proof is None or batch <= captured or proof.graph_share >= 1:
        return ""
    return (
        f"{batch} requests run and sizes up to {captured} are captured, so"
        f" {percent(1 - proof.graph_share)} of the steps were eager: capture at least {batch}"
    )


def capped_requests(seen: Seen) -> str:
    """A speculative cell that may run fewer requests than its baseline."""
    if seen.record.is_baseline or seen.best is None:
        return ""
    own, base = (
        text
        for text in (setting(seen, "max_running_requests"), _of_best(seen, "max_running_requests"))
    )
    if not own.isdigit() or own == base:
        return ""
    limit = base if base.isdigit() else "no limit"
    return (
        f"max_running_requests is {own} with the drafter and {limit} in the baseline: engines lower"
        " it silently for speculation; set it in every cell"
    )


def lost_overlap(seen: Seen) -> str:
    """Speculation that switched off overlap scheduling, which the baseline keeps."""
    name = "disable_overlap_schedule"
    if seen.record.is_baseline or setting(seen, name) != "true" or _of_best(seen, name) == "true":
        return ""
    return (
        "overlap scheduling is off with the drafter and on in the baseline: part of the loss is the"
        " scheduler's, not the drafter's"
    )


def _of_best(seen: Seen, name: str) -> str:
    """Return what the best baseline's engine resolved for a setting."""
    return seen.best.settings.get(name, "").lower() if seen.best else ""


RULES = (
    Rule("draft inherits quantisation", ARGUMENTS, inherited_quantization),
    Rule("above captured sizes", ARGUMENTS, above_captured_sizes),
    Rule("capped requests", ARGUMENTS, capped_requests),
    Rule("lost overlap", "https://github.com/sgl-project/sglang/issues/12411", lost_overlap),
)
