"""A machine as bandwidth, the cost of an all-reduce by size, and the cost of a launch."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.roi import public_figures as public
from pipeline.roi.public_figures import Curve


@dataclass(frozen=True)
class Box:
    """One machine, or several.

    Attributes:
        name: What it is, for people.
        ranks: GPUs that a target is split over.
        bandwidth: Memory bandwidth of one GPU, bytes/s, as specified.
        nccl: Time of an all-reduce with NCCL: the fastest and the slowest published.
        fused: The same with a fused or one-shot kernel; empty where none works.
        kernel_us: Latency of a captured kernel on its own; 0 where the fitted machine's holds.
        source: Where bandwidth and curves are published.
    """

    name: str
    ranks: int
    bandwidth: float
    nccl: tuple[Curve, Curve]
    fused: tuple[Curve, ...]
    kernel_us: float
    source: str


# The same ring's bandwidth end, so that large batches are not taken as latency.
_RING = ((1024.0, 4096.0, 16384.0), (85.0, 191.0, 665.0))
_WRX90 = public.RTX6KPRO + "hardware/wrx90-cpayne-8gpu-root-topology-comparison.md"


def _with_ring(curve: Curve) -> Curve:
    """Return a PCIe curve with the large messages of the one machine that published them."""
    return Curve((*curve.kib, *_RING[0]), (*curve.us, *_RING[1]), curve.source)


_NVLINK_FUSED = Curve(
    (56.0, 1024.0),
    (4.9, 15.0),
    "https://github.com/flashinfer-ai/flashinfer/pull/5178 (8 GPUs, 4 rows); 1 MiB assumed",
)
_NVLINK_NCCL = (
    Curve((256.0, 1024.0, 16384.0), (6.5, 15.0, 90.0), "2x H200 measured, a bound for 8"),
    Curve((256.0, 1024.0, 16384.0), (24.0, 35.0, 150.0), "8 PCIe GPUs behind switches, a bound"),
)
PCIE8 = Box(
    "8x RTX PRO 6000, PCIe",
    8,
    1.79e12,
    (_with_ring(public.NCCL_PCIE_8[0]), _with_ring(public.NCCL_PCIE_8[3])),
    (public.CUSTOM_PCIE_8,),
    0.0,
    f"1.79 TB/s a GPU; all-reduce: {public.NCCL_PCIE_8[0].source},"
    f" {public.NCCL_PCIE_8[3].source}, large messages {_WRX90}",
)
NVLINK8 = Box(
    "8x H200, NVLink",
    8,
    4.8e12,
    _NVLINK_NCCL,
    (_NVLINK_FUSED,),
    4.4,
    f"4.8 TB/s a GPU; NCCL between two bounds; fused: {_NVLINK_FUSED.source};"
    " 4.4 µs a captured kernel measured on 2x H200",
)
TWO_HOSTS = Box(
    "2 hosts x 8 H200, cloud network",
    16,
    4.8e12,
    (
        Curve((256.0, 1024.0, 16384.0), (40.0, 70.0, 300.0), "assumed: a fast InfiniBand"),
        public.NCCL_TWO_HOSTS,
    ),
    (),
    4.4,
    f"4.8 TB/s a GPU; all-reduce: {public.NCCL_TWO_HOSTS.source} as the slow end, a fast"
    " InfiniBand assumed as the quick one; no fused kernel crosses hosts",
)
