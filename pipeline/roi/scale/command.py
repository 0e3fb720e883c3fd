"""Answer `python -m pipeline.roi scale=NAME`: read its settings, write the cost model's tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from pipeline.measure.wording import number, percent, table
from pipeline.roi import public_figures as public
from pipeline.roi.scale import command as tables
from pipeline.roi.scale import cost_model as measured
from pipeline.roi.scale.cost_model import LAUNCH_SOURCE, LAUNCH_US, CostModel, cost_model
from pipeline.roi.scale.forward_cost import KIMI_K2_5, MEANING, Work, terms
from pipeline.roi.scale.machines import NVLINK8, PCIE8, TWO_HOSTS, Box
from pipeline.roi.scale.outlook import Outlook, PaperDrafter, outlook

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
    PaperDrafter("n-gram on prose", 8, 1.1, 1.23, False, "the pivot: 41 tok/s at 30 ms"),
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


def best(rows: Sequence[Outlook]) -> str:
    """Write, by load, which pairs pay on the whole range."""
    said = []
    for context, batch in dict.fromkeys((r.work.context, r.work.batch) for r in rows):
        own = [r for r in rows if (r.work.context, r.work.batch) == (context, batch)]
        paying = [r for r in own if r.verdict == "pays"]
        paying.sort(key=lambda r: (-r.speed_up[0], not r.way.captured))
        names = ", ".join(f"{r.drafter.name} × {r.way.name}" for r in paying[:2])
        said.append(
            f"- context {context}, batch {batch}: "
            + (f"**{names}**" if paying else "nothing pays on the whole of its range")
        )
    return "\n".join(said)


def outlook_table(rows: Sequence[Outlook]) -> str:
    """Write the speed-up of every pair at every load; bold where the whole range pays."""
    loads = list(dict.fromkeys((r.work.context, r.work.batch) for r in rows))
    pairs: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        text = f"{number(row.speed_up[0])}–{number(row.speed_up[1])}"
        cell = f"**{text}**" if row.verdict == "pays" else text
        pairs.setdefault((row.drafter.name, row.way.name), []).append(cell)
    head = ("drafter", "verify step", *(f"{context} × {batch}" for context, batch in loads))
    return table(head, [(*pair, *cells) for pair, cells in pairs.items()], text=2)


def steps_table(rows: Sequence[Outlook]) -> str:
    """Write step time and speed of every pair: for a single load."""
    head = ("drafter", "verify step", "accept length", "step, ms", "tok/s")
    return table(
        head,
        [
            (
                r.drafter.name,
                r.way.name,
                f"{number(r.drafter.low)}–{number(r.drafter.high)}",
                f"{number(r.step_ms[0])}–{number(r.step_ms[1])}",
                f"{number(r.tok_s[0])}–{number(r.tok_s[1])}",
            )
            for r in rows
        ],
        text=2,
    )


def terms_table(model: CostModel, box: Box) -> str:
    """Write each term at one request of plain decoding and of verifying, and its coefficient."""
    plain, verify = (terms(KIMI_K2_5, box, Work(1, width, 32768), box.nccl[0]) for width in (1, 4))
    used = model.coefficients._replace(fixed=model.fixed_ms(KIMI_K2_5, box))
    sources = {
        "weights": f"{KIMI_K2_5.source}; {KIMI_K2_5.distinct_experts(1):.0f} and"
        f" {KIMI_K2_5.distinct_experts(4):.0f} distinct experts a layer at 1 and 4 rows",
        "cache": f"{KIMI_K2_5.source}; fp8, every rank reads all of it",
        "cache_again": "the same",
        "allreduce": f"{KIMI_K2_5.allreduces} a forward; {box.source}",
        "fixed": f"{box.kernel_us:g} µs × {KIMI_K2_5.kernels} kernels on this machine"
        if box.kernel_us
        else measured.SOURCE,
        "draft": measured.SOURCE,
    }
    rows = [
        (name, MEANING[name], source, number(p), number(v), number(c))
        for (name, source), p, v, c in zip(sources.items(), plain, verify, used, strict=True)
    ]
    rows.append(
        (
            "launch",
            "µs a kernel, eager only",
            LAUNCH_SOURCE,
            "–",
            "–",
            f"{LAUNCH_US[0]:g}–{LAUNCH_US[1]:g}",
        )
    )
    head = ("term", "its coefficient is", "source", "ms at width 1", "at width 4", "coefficient")
    return table(head, rows, text=3)


def check(model: CostModel) -> Iterator[str]:
    """Yield the error on fitted and on other steps, the latter one by one."""
    fitted, checked = np.array(model.fitted), np.array(model.checked)
    yield (
        f"Coefficients are fitted to {len(fitted)} published steps of Kimi-K2.6 on 8 PCIe GPUs"
        f" (plain decoding at every batch and context, drafting for one request):"
        f" median error {percent(float(np.median(fitted)))}. On {len(checked)} published steps"
        f" that were not fitted (drafting for 2 to 128 requests): median"
        f" {percent(float(median(checked)))}, 90th percentile {percent(model.spread)}, which"
        f" every range above carries. Source: {measured.SOURCE}. On other machines only the"
        " hardware's own figures change; nothing was measured there."
    )
    rows = []
    for step, length in measured.to_check():
        predicted = model.step_ms(KIMI_K2_5, PCIE8, step.work, measured.ALLREDUCE, True)
        rows.append(
            (
                str(step.work.context),
                str(step.work.batch),
                f"{length:.2f}",
                number(step.ms),
                number(predicted),
                f"{100 * (predicted / step.ms - 1):+.0f} %".replace("-", "−"),
            )
        )
    head = ("context", "requests", "accept length", "measured ms", "predicted ms", "off")
    yield table(head, rows, text=0)
