"""Answer `python -m pipeline.roi scale=NAME`: which drafter with which backend pays on paper.

`outlook` weighs every pair at one load with the cost model; `scale_lines` reads the settings and
writes the tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from pipeline.measure.wording import grouped, number, percent, table
from pipeline.roi import public_figures as public
from pipeline.roi.scale.cost_model import (
    ALLREDUCE,
    LAUNCH_SOURCE,
    LAUNCH_US,
    SOURCE,
    CostModel,
    cost_model,
    to_check,
)
from pipeline.roi.scale.forward_cost import (
    KIMI_K2_5,
    MEANING,
    NVLINK8,
    PCIE8,
    TWO_HOSTS,
    Box,
    ScaleTarget,
    Work,
    terms,
)


class Way(NamedTuple):
    """How a verify step runs on paper.

    Attributes:
        name: What it is called in tables.
        captured: It is replayed from a capture instead of launched kernel by kernel.
        fused: All-reduce, residual add and norm are one kernel.
    """

    name: str
    captured: bool = False
    fused: bool = False


EAGER, CAPTURED = Way("eager"), Way("captured", captured=True)
FUSED = Way("captured and fused", captured=True, fused=True)


class PaperDrafter(NamedTuple):
    """A drafter as two numbers.

    Attributes:
        name: What it is.
        width: Rows of its verify step.
        low: Least accept length.
        high: Most.
        trained: It runs a model; looking text up costs nothing here.
        source: Where the accept length comes from.
    """

    name: str
    width: int
    low: float
    high: float
    trained: bool
    source: str


class Outlook(NamedTuple):
    """One drafter with one way to verify, at one batch and context.

    Attributes:
        drafter: The drafter.
        way: How the verify step runs.
        work: Batch, width and context.
        step_ms: Step time, quick and slow end.
        tok_s: Speed over all requests, slow and quick end.
        speed_up: Against the fastest plain decoding, low and high.
    """

    drafter: PaperDrafter
    way: Way
    work: Work
    step_ms: tuple[float, float]
    tok_s: tuple[float, float]
    speed_up: tuple[float, float]

    @property
    def verdict(self) -> str:
        """Whether the whole range pays, none of it, or it cannot be said on paper."""
        if self.speed_up[0] > 1:
            return "pays"
        return "does not pay" if self.speed_up[1] < 1 else "measure it"


def outlook(
    model: CostModel, target: ScaleTarget, box: Box, drafters: Sequence[PaperDrafter], load: Work
) -> Iterator[Outlook]:
    """Yield every drafter with every way to verify that the machine has, at one batch and context.

    Both ends of an all-reduce's time are carried through drafter and baseline together, for it is
    one machine; the model's own error on steps that it was not fitted to widens each end.
    """
    captured = [CAPTURED, *([FUSED] if box.fused else [])]
    plain = Work(load.batch, 1, load.context)
    for drafter in drafters:
        work = Work(load.batch, drafter.width, load.context)
        for way in (EAGER, *captured):
            ratios, steps = [], []
            for end in (0, 1):
                step = step_of(model, target, box, work, way, end, drafter.trained)
                base = min(step_of(model, target, box, plain, w, end, False) for w in captured)
                ratios.append(base / step)
                steps.append(step)
            off = 1 + model.spread
            slow, quick = max(steps) * off, min(steps) / off
            yield Outlook(
                drafter,
                way,
                work,
                (quick, slow),
                (
                    1000 * load.batch * drafter.low / slow,
                    1000 * load.batch * drafter.high / quick,
                ),
                (drafter.low * min(ratios) / off, drafter.high * max(ratios) * off),
            )


def step_of(
    model: CostModel,
    target: ScaleTarget,
    box: Box,
    work: Work,
    way: Way,
    end: int,
    drafts: bool,
) -> float:
    """Return one step's ms at the quick (0) or slow (1) end of the machine's all-reduces.

    An eager forward takes as long as its launches if those outlast the device's work.
    """
    curve = box.fused[0] if way.fused else box.nccl[end]
    on_device = model.step_ms(target, box, work, curve, drafts)
    if way.captured:
        return on_device
    launches = target.kernels * LAUNCH_US[end] / 1000
    draft = model.coefficients.draft if drafts else 0.0
    return max(on_device, launches + draft)


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
    yield _best(rows)
    yield "Speed-up over the fastest plain decoding, by context × requests; bold: pays at both ends"
    yield _outlook_table(rows)
    if len({(r.work.context, r.work.batch) for r in rows}) == 1:
        yield _steps_table(rows)
    yield "Accept lengths: " + "; ".join(f"{d.name}: {d.source}" for d in drafters) + "."
    yield "## Terms, each with its source"
    yield _terms_table(model, box)
    yield "## How far off the model is"
    yield from _check(model)


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


def _best(rows: Sequence[Outlook]) -> str:
    """Write, by load, which pairs pay on the whole range."""
    said = []
    for (context, batch), own in grouped(((r.work.context, r.work.batch), r) for r in rows).items():
        paying = [r for r in own if r.verdict == "pays"]
        paying.sort(key=lambda r: (-r.speed_up[0], not r.way.captured))
        names = ", ".join(f"{r.drafter.name} × {r.way.name}" for r in paying[:2])
        said.append(
            f"- context {context}, batch {batch}: "
            + (f"**{names}**" if paying else "nothing pays on the whole of its range")
        )
    return "\n".join(said)


def _outlook_table(rows: Sequence[Outlook]) -> str:
    """Write the speed-up of every pair at every load; bold where the whole range pays."""
    loads = list(dict.fromkeys((r.work.context, r.work.batch) for r in rows))
    pairs: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        text = f"{number(row.speed_up[0])}–{number(row.speed_up[1])}"
        cell = f"**{text}**" if row.verdict == "pays" else text
        pairs.setdefault((row.drafter.name, row.way.name), []).append(cell)
    head = ("drafter", "verify step", *(f"{context} × {batch}" for context, batch in loads))
    return table(head, [(*pair, *cells) for pair, cells in pairs.items()], text=2)


def _steps_table(rows: Sequence[Outlook]) -> str:
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


def _terms_table(model: CostModel, box: Box) -> str:
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
        else SOURCE,
        "draft": SOURCE,
    }
    rows = [
        (name, MEANING[name], source, number(p), number(v), number(c))
        for (name, source), p, v, c in zip(sources.items(), plain, verify, used, strict=True)
    ]
    launch = f"{LAUNCH_US[0]:g}–{LAUNCH_US[1]:g}"
    rows.append(("launch", "µs a kernel, eager only", LAUNCH_SOURCE, "–", "–", launch))
    head = ("term", "its coefficient is", "source", "ms at width 1", "at width 4", "coefficient")
    return table(head, rows, text=3)


def _check(model: CostModel) -> Iterator[str]:
    """Yield the error on fitted and on other steps, the latter one by one."""
    fitted, checked = np.array(model.fitted), np.array(model.checked)
    yield (
        f"Coefficients are fitted to {len(fitted)} published steps of Kimi-K2.6 on 8 PCIe GPUs"
        f" (plain decoding at every batch and context, drafting for one request):"
        f" median error {percent(float(np.median(fitted)))}. On {len(checked)} published steps"
        f" that were not fitted (drafting for 2 to 128 requests): median"
        f" {percent(float(median(checked)))}, 90th percentile {percent(model.spread)}, which"
        f" every range above carries. Source: {SOURCE}. On other machines only the"
        " hardware's own figures change; nothing was measured there."
    )
    rows = [
        (
            str(step.work.context),
            str(step.work.batch),
            f"{length:.2f}",
            number(step.ms),
            number(predicted := model.step_ms(KIMI_K2_5, PCIE8, step.work, ALLREDUCE, True)),
            f"{100 * (predicted / step.ms - 1):+.0f} %".replace("-", "−"),
        )
        for step, length in to_check()
    ]
    head = ("context", "requests", "accept length", "measured ms", "predicted ms", "off")
    yield table(head, rows, text=0)
