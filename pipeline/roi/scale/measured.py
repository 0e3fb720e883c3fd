"""Public measurements of Kimi-K2.6 on 8 PCIe GPUs: what the model is fitted to and checked on.

Source: https://github.com/local-inference-lab/rtx6kpro/blob/master/models/kimi-k26-v4.md, tables
"DCP1 MTP off", "DCP1 MTP on" and its accept rates; drafter lightseekorg/kimi-k2.5-eagle3-mla, three
draft tokens, vLLM, captured. One row per context, one column per number of requests.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.roi.public_figures import CUSTOM_PCIE_8, Curve
from pipeline.roi.scale.fit import Step
from pipeline.roi.scale.machines import PCIE8
from pipeline.roi.scale.terms import Work

SOURCE = "https://github.com/local-inference-lab/rtx6kpro/blob/master/models/kimi-k26-v4.md"
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)
DRAFT_TOKENS = 3
# That machine ran its own one-shot all-reduce up to 56 KiB and NCCL above.
_SIZES = (0.25, 8.0, 32.0, 56.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0)
ALLREDUCE = Curve(
    _SIZES,
    tuple(CUSTOM_PCIE_8.at(kib) if kib <= 56 else PCIE8.nccl[0].at(kib) for kib in _SIZES),
    SOURCE + " (one-shot up to 56 KiB)",
)
PLAIN_TOK_S = {
    0: (92.4, 151.3, 239.5, 350.9, 636.2, 957.7, 1497.3, 2222.6),
    16384: (81.5, 134.9, 207.2, 298.9, 489.5),
    32768: (73.4, 123.3, 183.2, 261.8),
    65536: (60.5, 106.2, 149.3),
    131072: (46.1, 83.6),
}
DRAFTED_TOK_S = {
    0: (122.0, 176.6, 337.7, 492.6, 754.1, 1129.0, 1675.0, 2245.8),
    16384: (103.8, 171.9, 254.7, 351.7, 484.6),
    32768: (92.9, 136.9, 207.8, 265.8),
    65536: (74.6, 115.8, 155.1),
    131072: (58.3, 78.7),
}
ACCEPT_RATE = {
    0: (0.494, 0.353, 0.368, 0.493, 0.354, 0.370, 0.396, 0.417),
    16384: (0.347, 0.386, 0.421, 0.352, 0.359),
    32768: (0.317, 0.462, 0.344, 0.349),
    65536: (0.581, 0.347, 0.441),
    131072: (0.333, 0.211),
}


def plain_steps() -> Iterator[Step]:
    """Yield plain decoding: a forward over as many rows as there are requests."""
    for context, speeds in PLAIN_TOK_S.items():
        for batch, tok_s in zip(REQUESTS, speeds, strict=False):
            yield Step(Work(batch, 1, context), 1000 * batch / tok_s)


def drafted_steps() -> Iterator[tuple[Step, float]]:
    """Yield speculative steps with their accept length: `1 + 3 × accept rate`."""
    for context, speeds in DRAFTED_TOK_S.items():
        for batch, tok_s, rate in zip(REQUESTS, speeds, ACCEPT_RATE[context], strict=False):
            length = 1 + DRAFT_TOKENS * rate
            work = Work(batch, DRAFT_TOKENS + 1, context)
            yield Step(work, 1000 * batch * length / tok_s), length


def to_fit() -> list[Step]:
    """Return what coefficients are fitted to: plain decoding, and drafting for one request."""
    return [*plain_steps(), *(s for s, _ in drafted_steps() if s.work.batch == 1)]


def to_check() -> list[tuple[Step, float]]:
    """Return what they are checked on: drafting for two to 128 requests."""
    return [(s, length) for s, length in drafted_steps() if s.work.batch > 1]
