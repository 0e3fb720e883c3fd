"""One process a rank: all meet, sum over loopback, and one that raises ends the others."""

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessRaisedException

from verify.ranks import ENVIRONMENT, each_rank


def add_up(device, folder, fails):
    """Write the sum of all ranks' numbers, unless this is the rank that fails."""
    rank = dist.get_rank()
    if rank == fails:
        raise ValueError(f"rank {rank} fails")
    number = torch.tensor(rank + 1, device=device)
    dist.all_reduce(number)
    (folder / f"{rank}").write_text(f"{device} {int(number)}")


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)  # each_rank sets them; this puts back what was there


def test_every_rank_meets_the_others(tmp_path):
    each_rank(add_up, 2, tmp_path, None, kind="cpu")
    assert [(tmp_path / name).read_text() for name in "01"] == ["cpu 3", "cpu 3"]


def test_a_rank_that_raises_ends_the_others_and_is_named(tmp_path):
    with pytest.raises(ProcessRaisedException, match="rank 1 fails"):
        each_rank(add_up, 2, tmp_path, 1, kind="cpu")
    assert not list(tmp_path.iterdir())
