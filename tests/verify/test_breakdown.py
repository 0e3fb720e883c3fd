from dataclasses import astuple

import pytest

from verify.breakdown import Breakdown, Floor, Kernel, by_trace, is_communication

# Two steps of: product, all-reduce (starts early, floor 3, spins 2 more), a gap of 4, product.
STEP = [
    Kernel("product", 0.0, 10.0),
    Kernel("one_shot", 6.0, 15.0),
    Kernel("product", 19.0, 29.0),
]
TRACE = [Kernel(k.name, k.begin + at, k.end + at) for at in (0.0, 100.0) for k in STEP]
FLOOR = Floor(calls=1, call_us=3.0)


def test_a_trace_divides_into_compute_wire_wait_and_launch():
    found = by_trace(TRACE, 2, FLOOR)
    assert found.total == pytest.approx(0.029)
    assert astuple(found) == pytest.approx((0.020, 0.003, 0.002, 0.004))


def test_the_copy_before_the_first_kernel_is_left_out():
    copies = [Kernel("Memcpy HtoD (Pinned -> Device)", at - 60.0, at - 59.0) for at in (0.0, 100.0)]
    assert by_trace(copies + TRACE, 2, FLOOR) == by_trace(TRACE, 2, FLOOR)


def test_what_the_profiler_takes_at_launches_is_no_part_of_the_step():
    eager, captured = Breakdown(4.3, 0.0, 0.0, 17.6), Breakdown(4.2, 0.0, 0.0, 0.01)
    assert eager.unslowed(10.1).launch == pytest.approx(5.8)
    assert eager.unslowed(4.0).launch == 0
    assert captured.unslowed(4.3) == captured


def test_the_norm_inside_a_fused_allreduce_is_compute():
    found = by_trace(TRACE, 2, Floor(1, 3.0, norm_us=1.0))
    assert astuple(found) == pytest.approx((0.021, 0.002, 0.002, 0.004))


def test_a_trace_that_does_not_divide_into_its_steps_is_refused():
    with pytest.raises(ValueError, match="5 kernels do not divide into 2 equal steps"):
        by_trace(TRACE[:5], 2, FLOOR)


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        "all_reduce_kernel<AllReducePushImpl<__nv_bfloat16, 2u, true>>",
        "flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport",
        "one_shot",
    ],
)
def test_known_allreduce_kernels_count_as_communication(name):
    assert is_communication(name)
    assert not is_communication("_attend_split")
