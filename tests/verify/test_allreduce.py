import pytest

from verify.allreduce import findings, main, table
from verify.base import Proof
from verify.fused_allreduce import FusedAllreduce


class Times(tuple):
    eager_us = property(lambda self: self[0])
    captured_us = property(lambda self: self[1])


NEAR = {"nccl": Times((20.0, 7.0)), "one-shot": Times((9.0, 3.0)), "two-shot": Times((9.0, 5.0))}
FAR = {"nccl": Times((205.0, 7.0)), "one-shot": Times((9.0, 6.0)), "two-shot": Times((9.0, 5.0))}


def test_an_allreduce_of_205_microseconds_is_flagged_with_its_known_causes():
    text = "\n".join(findings([8192], [FAR]))
    assert "an eager NCCL call takes 205 us, captured 7: far from the floor" in text
    for cause in ("capture the step", "ForceP2P", "NCCL_PROTO=LL"):
        assert cause in text


def test_an_allreduce_near_the_floor_is_not_flagged_and_the_crossover_is_named():
    assert findings([8192, 65536], [NEAR, NEAR]) == [
        "one-shot is the fastest up to 65536 bytes, the most measured"
    ]
    assert "two-shot is faster than one-shot from 65536 bytes on" in findings(
        [8192, 65536], [NEAR, {**FAR, "nccl": NEAR["nccl"]}]
    )


def test_the_table_shows_eager_and_captured_times():
    assert "| 8192 | 20.0 / 7.0 | 9.0 / 3.0 | 9.0 / 5.0 |" in table([8192], [NEAR])


def test_one_gpu_has_nothing_to_measure():
    with pytest.raises(ValueError, match="--ranks=1: an all-reduce needs 2 GPUs or more"):
        main(["--ranks", "1"])


def proof(fused, captured=10):
    return Proof("cuda_graph", 10, captured, "", "", "fused", 64.0, fused)


def test_a_fused_cell_is_contradicted_by_unfused_allreduces_and_by_eager_steps():
    backend = FusedAllreduce()
    assert backend.contradiction(proof(64.0)) is None
    assert "32 of 64 all-reduces a step were fused" in backend.contradiction(proof(32.0))
    assert "90.0% of 10 verify steps" in backend.contradiction(proof(64.0, captured=9))
    one_rank = Proof("cuda_graph", 10, 10, "", "")
    assert "0 of 0 all-reduces a step were fused (none)" in backend.contradiction(one_rank)
