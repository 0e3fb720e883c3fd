"""Known faults of set-ups: what an engine changes silently when speculation is switched on."""

from __future__ import annotations

from pipeline.measure.wording import percent
from pipeline.record.record import CellRecord
from pipeline.roi.advisor.cell_view import Rule, Seen
from pipeline.roi.public_figures import EAGLE3_ACCEPT

OFF = ("", "none", "null", "false", "unquant")
ARGUMENTS = "https://docs.sglang.ai/advanced_features/server_arguments.html"


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
    Rule("draft inherits quantisation", ARGUMENTS, inherited_quantization),
    Rule("above captured sizes", ARGUMENTS, above_captured_sizes),
    Rule("capped requests", ARGUMENTS, capped_requests),
    Rule("lost overlap", "https://github.com/sgl-project/sglang/issues/12411", lost_overlap),
)
