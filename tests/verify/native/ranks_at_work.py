"""What two ranks do for the tests of this folder: rank 0 in the test, rank 1 in a process.

`python -m tests.verify.native.ranks_at_work FOLDER RENDEZVOUS` is rank 1; it leaves what it found
in FOLDER.
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist

from pipeline.engine.torch.parallel.shards import shards
from tests.verify.native.llama import SHAPE, random_weights
from verify.native import build
from verify.native.packed import Packed
from verify.native.plan import Plan, memory_sizes
from verify.native.ranks import Place, RankMemory

# Heads as odd as SmolLM2's, 9 over 3, and a vocabulary that does not divide.
WHOLE = replace(SHAPE, num_heads=9, num_kv_heads=3, hidden_size=288, intermediate_size=320)
WAYS = ("shared_memory", "gloo", "fused")
WIDTHS, REPEATS = (1, 3, 8, 64), 10
MAX_WIDTH, SLOTS, CONTEXT = 8, 96, 70
EPS = WHOLE.rms_norm_eps


def rank_plan(rank, library, threads=1):
    """One rank's plan of the same random weights."""
    shard, weights = shards(WHOLE, 2)[rank], random_weights(WHOLE)
    packed = {name: part for name, part in weights.items() if isinstance(part, Packed)}
    place = Place(rank, 2, shard.vocabulary)
    memory = RankMemory(place, memory_sizes(WHOLE, MAX_WIDTH), shared, dist.all_reduce)
    shape = shard.own_shape
    cache = torch.full((shape.num_layers, shape.num_kv_heads, SLOTS, shape.head_dim), torch.nan)
    return Plan(
        shape,
        {**weights, **shard.of_packed(packed)},
        cache,
        cache.clone(),
        threads=threads,
        max_width=MAX_WIDTH,
        capture_layers=(0, 2),
        library=library,
        ranks=memory,
    )


def parts_of(width, seed):
    """Both ranks' parts of a block's output, the residual and the norm's weight."""
    draw = torch.Generator().manual_seed(seed)
    hidden = WHOLE.hidden_size
    deltas = torch.randn(2, width, hidden, generator=draw)
    return deltas, torch.randn(width, hidden, generator=draw), torch.randn(hidden, generator=draw)


def joins(plan, rank):
    """Norm and residual of fresh inputs, by way, width and repeat; what is stale is poison."""
    found = {}
    for way in WAYS:
        summing = plan.summing(way)
        for width in WIDTHS:
            for repeat in range(REPEATS):
                dist.barrier()  # nobody reads what is poisoned now
                plan.ranks.slots[rank] = torch.nan
                deltas, residual, weight = parts_of(width, 1000 * width + repeat)
                found[way, width, repeat] = summing.join(deltas[rank], residual, weight)[:2]
        assert summing.sums[way] == sum(summing.sums.values()) == len(WIDTHS) * REPEATS
    return found


def steps(plan):
    """Logits, best, margin and features of a tree after a context of two chunks, by way."""
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]).bool()
    tokens = torch.arange(CONTEXT + 4) % WHOLE.vocab_size
    positions = torch.arange(CONTEXT + 4)
    depths = CONTEXT + torch.tensor([0, 1, 1, 2])
    found = {}
    for way in plan.ways:
        summing = plan.summing(way)
        summing.prefill(tokens[:CONTEXT], positions[:CONTEXT])
        out = summing.run(tokens[CONTEXT:], depths, mask, CONTEXT)
        found[way] = tuple(part.clone() for part in out)
        assert summing.sums[way] == 2 * WHOLE.num_layers * 3
    return found


def at_work(rank, library, rendezvous):
    """All that one rank computes; two plans after each other, on one thread and on two."""
    method = f"file://{rendezvous}"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=2)
    plan = rank_plan(rank, library)
    found = {"joins": joins(plan, rank), "steps": steps(plan)}
    found["two threads"] = steps(rank_plan(rank, library, threads=2))
    dist.destroy_process_group()
    return found


def shared(path):
    """Return rank 0's path on both ranks."""
    paths = [path]
    dist.broadcast_object_list(paths, src=0)
    return paths[0]


def main(folder, rendezvous):
    torch.save(at_work(1, build.load(folder), rendezvous), folder / "rank1.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
