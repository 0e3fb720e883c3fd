"""Public figures that bound a lever: each with the address where anyone can read it."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

RTX6KPRO = "https://github.com/local-inference-lab/rtx6kpro/blob/master/"
SPECBUNDLE = (
    "https://github.com/sgl-project/SpecForge/blob/main/docs/spec_bundle/public/raw_data/data.json"
)
K25_CARD = "https://huggingface.co/lightseekorg/kimi-k2.5-eagle3"
EAGLE3_PAPER = "https://arxiv.org/abs/2503.01840"
IMP_GRAPHS = "https://github.com/kekzl/imp/pull/856"


class Curve(NamedTuple):
    """Time of one all-reduce by message size on one public machine.

    Attributes:
        kib: Message sizes, rising.
        us: Time at each, in µs.
        source: Where it was published.
    """

    kib: tuple[float, ...]
    us: tuple[float, ...]
    source: str

    def at(self, kib: float) -> float:
        """Return the time at a size: linear between points, flat below, bandwidth-like above."""
        if kib <= self.kib[0]:
            return self.us[0]
        right = min(bisect_left(self.kib, kib), len(self.kib) - 1)
        (a, b), (x, y) = self.kib[right - 1 : right + 1], self.us[right - 1 : right + 1]
        return max(x + (y - x) * (kib - a) / (b - a), min(x, y))


# NCCL, 8 GPUs on PCIe, bf16. The first three are well set up machines.
NCCL_PCIE_8 = (
    Curve((8, 32, 64, 256), (24.2, 24.5, 24.1, 28.0), RTX6KPRO + "models/kimi-k25.md"),
    Curve(
        (4, 16, 64, 256),
        (20.6, 18.0, 21.6, 25.0),
        RTX6KPRO + "hardware/wrx90-cpayne-8gpu-root-topology-comparison.md",
    ),
    Curve((32, 64, 128, 256), (26, 26, 32, 37), RTX6KPRO + "optimization/nccl-tuning.md"),
    Curve((32, 64, 128, 256), (48, 49, 52, 56), RTX6KPRO + "optimization/nccl-tuning.md"),
    Curve((4, 64), (57, 68), RTX6KPRO + "hardware/asus-esc8000a-e13p-broadcom-switches.md"),
)
# A custom one-shot all-reduce on the same kind of machine: cheap when small, dear when large.
CUSTOM_PCIE_8 = Curve(
    (0.25, 8, 32, 64, 256), (7.5, 9.2, 16.5, 25.9, 73.6), RTX6KPRO + "models/kimi-k25.md"
)
# Where the custom one loses to NCCL on such a machine: from about 48 KiB on.
CROSSOVER_SOURCE = RTX6KPRO + "optimization/pcie-oneshot-allreduce.md"
# Two hosts of eight H100 over a cloud network, NCCL, out of place.
NCCL_TWO_HOSTS = Curve(
    (4, 8, 16, 32, 64, 128, 256, 512, 1024),
    (126.9, 131.6, 138.6, 155.2, 159.4, 159.3, 167.1, 174.2, 203.2),
    "https://github.com/lessizzmore/create-a3mega-ztan-fork/blob/main/ztan-NCCL-test-result",
)

# What doubling the training data of one domain did: 300k → 600k samples, seven benchmarks.
DOUBLING = (1.006, 1.025)
# What a missing domain was worth once it was added to the data: CEval 1.482 → 2.295.
MISSING_DOMAIN = 2.295 / 1.482
# Eight times the data; the paper's curve, read off by a secondary source.
EIGHTFOLD = 1.22
# Captured against eager verify, as a ratio of whole speed on short contexts.
CAPTURE_GAIN = (1.38, 1.97)

# EAGLE-3 at 3 steps, top-k 1: 10th to 90th percentile over the 88 SpecBundle cells of that shape.
EAGLE3_ACCEPT = (1.99, 3.37)
# By target: accept length that published drafters reach, from real traffic to the best benchmark.
PUBLISHED_DRAFTERS = {
    "kimi_k2_5": (
        2.30,
        3.34,
        K25_CARD + " (MT-Bench 2.69 to MATH500 3.34) and its successors (real traffic 2.30)",
    ),
    "kimi_k2": (2.39, 3.47, "AQ-MedAI/Kimi-K2-Instruct-eagle3 in " + SPECBUNDLE),
}
# Speed-up at batch 8 over that at batch 1: 0.994/0.848 on one machine, 2.09/3.42 on another.
BATCH_8 = (0.61, 1.17)
BATCH_SOURCE = (
    "https://github.com/Tencent/AngelSlim/issues/163 (0.85x at 1, 0.99x at 8) and a vendor's"
    " 3.42x at 1, 2.09x at 8"
)


def floor_us(kib: float) -> tuple[float, float]:
    """Return the fastest and the slowest published time of one all-reduce of this size, in µs."""
    times = [curve.at(kib) for curve in NCCL_PCIE_8]
    return min(times), max(times)


def more_data(factor: float) -> tuple[float, float]:
    """Return what `factor` times the samples of the same domain multiplies accept length by.

    Low: the gain per doubling of a drafter that already has 300k samples; high: the paper's
    curve, which begins where data are scarce.
    """
    doublings = math.log2(factor)
    return DOUBLING[0] ** doublings, EIGHTFOLD ** (doublings / 3)
