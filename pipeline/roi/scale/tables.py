"""The cost model's answer as tables: who pays where, the terms with their sources, the check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from pipeline.measure.wording import number, percent, table
from pipeline.roi.scale import measured
from pipeline.roi.scale.cost_model import LAUNCH_SOURCE, LAUNCH_US, CostModel
from pipeline.roi.scale.forward_cost import KIMI_K2_5
from pipeline.roi.scale.machines import PCIE8, Box
from pipeline.roi.scale.outlook import Outlook
from pipeline.roi.scale.terms import MEANING, Work, terms


def best(rows: Sequence[Outlook]) -> str:
    """Write, by load, which pairs pay on the whole range."""
    said = []
    for context, batch in dict.fromkeys((r.work.context, r.work.batch) for r in rows):
        own = [r for r in rows if (r.work.context, r.work.batch) == (context, batch)]
        paying = [r for r in own if r.verdict == "pays"]
        paying.sort(key=lambda r: (-r.speed_up[0], r.backend == "extend"))
        names = ", ".join(f"{r.drafter.name} × {r.backend}" for r in paying[:2])
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
        pairs.setdefault((row.drafter.name, row.backend), []).append(cell)
    head = ("drafter", "backend", *(f"{context} × {batch}" for context, batch in loads))
    return table(head, [(*pair, *cells) for pair, cells in pairs.items()], text=2)


def steps_table(rows: Sequence[Outlook]) -> str:
    """Write step time and speed of every pair: for a single load."""
    head = ("drafter", "backend", "accept length", "step, ms", "tok/s")
    return table(
        head,
        [
            (
                r.drafter.name,
                r.backend,
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
