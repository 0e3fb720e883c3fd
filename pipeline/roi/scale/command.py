"""`python -m pipeline.roi scale=NAME`: the cost model's answer as tables, its check beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.roi import public_figures as public
from pipeline.roi.scale import tables
from pipeline.roi.scale.cost_model import cost_model
from pipeline.roi.scale.forward_cost import KIMI_K2_5
from pipeline.roi.scale.machines import NVLINK8, PCIE8, TWO_HOSTS, Box
from pipeline.roi.scale.outlook import PaperDrafter, outlook
from pipeline.roi.scale.terms import Work

SCALES: dict[str, Box] = {
    "kimi_k2_5_pcie8": PCIE8,
    "kimi_k2_5_nvlink8": NVLINK8,
    "kimi_k2_5_16": TWO_HOSTS,
}
GOLDEN = "https://github.com/SemiAnalysisAI/InferenceX (golden accept lengths, K=3)"
DRAFTERS = (
    PaperDrafter("eagle3, 37k samples", 4, 2.0, 2.0, True, "the pivot's own figure"),
    PaperDrafter("eagle3, published for K2.5", 4, 2.30, 2.88, True, f"{public.K25_CARD}; {GOLDEN}"),
    PaperDrafter("eagle3 of K2 on K2.5", 4, 1.5, 1.56, True, "the pivot's own figure"),
    PaperDrafter("ngram on prose", 8, 1.1, 1.23, False, "the pivot: 41 tok/s at 30 ms"),
)
DEFAULTS = {"batch": "1,8,64", "context": "2048,32768"}


def scale_lines(name: str, arguments: Sequence[str]) -> Iterator[str]:
    """Yield the answer's Markdown blocks.

    Args:
        name: One of `SCALES`.
        arguments: `batch=…`, `context=…` (commas make lists), `accept_length=…`, `width=…`.

    Raises:
        ValueError: An unknown scale or key, or an impossible number.
    """
    if name not in SCALES:
        raise ValueError(f"scale={name}: known are {', '.join(SCALES)}")
    box, given = SCALES[name], _parse(arguments)
    model, drafters = cost_model(), list(DRAFTERS)
    if "accept_length" in given:
        length, width = _counts(given, "accept_length")[0], _counts(given, "width")[0]
        if length > width:
            raise ValueError(f"accept_length={length:g}: at most the width, {width:g}")
        drafters.append(PaperDrafter("yours", int(width), length, length, True, "your assumption"))
    rows = [
        row
        for context in _counts(given, "context")
        for batch in _counts(given, "batch")
        for row in outlook(model, KIMI_K2_5, box, drafters, Work(int(batch), 1, int(context)))
    ]
    yield f"# {KIMI_K2_5.name} on {box.name}, on paper"
    yield tables.best(rows)
    yield "Speed-up over the fastest plain decoding, by context × requests; bold: pays at both ends"
    yield tables.outlook_table(rows)
    if len({(r.work.context, r.work.batch) for r in rows}) == 1:
        yield tables.steps_table(rows)
    yield "Accept lengths: " + "; ".join(f"{d.name}: {d.source}" for d in drafters) + "."
    yield "## Terms, each with its source"
    yield tables.terms_table(model, box)
    yield "## How far off the model is"
    yield from tables.check(model)


def _parse(arguments: Sequence[str]) -> dict[str, str]:
    """Return settings by name.

    Raises:
        ValueError: One is unknown.
    """
    given = dict(DEFAULTS) | {"width": "4"}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key not in (*DEFAULTS, "accept_length", "width") or not equals:
            raise ValueError(f"{argument}: give batch=…, context=…, accept_length=… or width=…")
        given[key] = value
    return given


def _counts(given: dict[str, str], key: str) -> list[float]:
    """Return a list of numbers.

    Raises:
        ValueError: One is none, or impossible.
    """
    least = 0.0 if key == "context" else 2.0 if key == "width" else 1.0
    try:
        values = [float(text) for text in given[key].split(",")]
    except ValueError:
        raise ValueError(f"{key}={given[key]}: numbers with commas between") from None
    if not all(least <= value < 1e9 for value in values):
        raise ValueError(f"{key}={given[key]}: must be {least:g} or more")
    return values
