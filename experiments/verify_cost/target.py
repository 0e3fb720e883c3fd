"""What the GPU benchmarks share: an 8B-shaped random target, device times, the bandwidth floor."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from pipeline.engine.torch.kernels import Kernels
from pipeline.engine.torch.llama import KVCache, Llama
from pipeline.engine.torch.weights import dense_weights
from pipeline.target.random_checkpoint import RandomCheckpoint
from verify.base import StepInput, StepOutput, TargetShape

SHAPE_8B = TargetShape(
    num_layers=32,
    hidden_size=4096,
    intermediate_size=14336,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    rope_theta=500000.0,
    rms_norm_eps=1e-5,
    max_positions=65536,
    tie_word_embeddings=False,
)
CUDA = torch.device("cuda")
CONTEXT = 512  # unless said
CONTEXTS = (256, 512, 2048, 8192, 32768)


def target(
    num_layers: int,
    capacity: int,
    dtype: torch.dtype = torch.bfloat16,
    kernels: Kernels | None = None,
) -> Llama:
    """Return a target with random weights of bf16 values, computed in `dtype`."""
    shape = replace(SHAPE_8B, num_layers=num_layers)
    drawn = RandomCheckpoint(shape, torch.bfloat16)
    weights = dense_weights(shape, lambda name: drawn.tensor(name, CUDA), dtype, CUDA, kernels)
    cache = KVCache(shape, capacity, dtype, CUDA, shape.num_kv_heads)
    return Llama(shape, weights, cache, kernels=kernels)


def chain_step(width: int, start: int, seed: int = 0) -> StepInput:
    """Return a chain of random tokens after `start` committed ones."""
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(SHAPE_8B.vocab_size, (width,), generator=draw)
    mask = torch.ones(width, width, dtype=torch.bool).tril()
    return StepInput(tokens, torch.arange(width) + start, mask, start)


def weight_bytes(shape: TargetShape, itemsize: int = 2) -> int:
    """Return the bytes that one forward must read: all matrices but the embedding."""
    attention = shape.head_dim * (2 * shape.num_heads + 2 * shape.num_kv_heads)
    layer = shape.hidden_size * (attention + 3 * shape.intermediate_size)
    return itemsize * (shape.num_layers * layer + shape.vocab_size * shape.hidden_size)


def copy_bandwidth() -> float:
    """Return bytes per second of a device-to-device copy, read and written bytes counted."""
    source = torch.randn(2**31 // 4, device=CUDA)
    sink = torch.empty_like(source)
    ms = device_ms(lambda: sink.copy_(source), repeats=20)
    return 2 * source.numel() * source.element_size() / ms * 1e3


def times(
    run: Callable[[StepInput], StepOutput], inputs: StepInput, n: int = 40
) -> dict[str, float]:
    """Return the median device and wall time of a step, in ms, and the quartiles of the former."""
    device, wall = [], []
    for number in range(n + 5):
        began = time.perf_counter()
        out = run(inputs)
        ended = time.perf_counter()
        if number >= 5:
            device.append(out.device_ms)
            wall.append((ended - began) * 1e3)
    low, _, high = statistics.quantiles(device, n=4)
    return {
        "device_ms": statistics.median(device),
        "low": low,
        "high": high,
        "wall_ms": statistics.median(wall),
    }


def device_ms(run: Callable[[], object], repeats: int = 50, warm_ups: int = 5) -> float:
    """Return the median time of `run` between events, in ms."""
    times = []
    for number in range(warm_ups + repeats):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        run()
        ended.record()
        ended.synchronize()
        if number >= warm_ups:
            times.append(began.elapsed_time(ended))
    return statistics.median(times)


def graph_ms(run: Callable[[], object], repeats: int = 30) -> float:
    """Return the median time of one replay of `run` as a CUDA graph, in ms."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return device_ms(graph.replay, repeats)
