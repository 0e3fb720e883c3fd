"""Which all-reduce ran, by the names of the kernels that a forward launched."""

import gzip
import json
import threading

import pytest

from pipeline.engine.sglang.trace import all_reduces, wait_for_trace

FUSED = "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<x>"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CUSTOM = "void (anonymous)::all_reduce_kernel<AllReducePushImpl<__nv_bfloat16, 2u, true> >(x)"
LEGACY = "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 8>(x)"
NORM, GEMM = "rmsnorm", "gemm"


def forward(
    stage: str, number: int, kernels: list[str], graph: bool = True, requests: int = 1
) -> list[dict]:
    """Events of one forward: its span, its launches, and the kernels that follow later."""
    at, where = 1000.0 * number, {"ph": "X", "pid": 7, "tid": 7}
    name = f"step[{stage} bs={requests}]"
    events = [{"cat": "user_annotation", "name": name, "ts": at, "dur": 800.0} | where]
    launches = [kernels] if graph else [[kernel] for kernel in kernels]
    for index, names in enumerate(launches):
        correlation = number * 1000 + index
        name = "cudaGraphLaunch" if graph else "cudaLaunchKernelExC"
        launch = {"cat": "cuda_runtime", "name": name, "ts": at + index, "dur": 1.0}
        events.append(launch | where | {"args": {"correlation": correlation}})
        events += [
            {
                "ph": "X",
                "cat": "kernel",
                "name": kernel,
                "ts": at + 5000 + 4 * (index + place),
                "dur": 3,
                "args": {"correlation": correlation},
            }
            for place, kernel in enumerate(names)
        ]
    return events


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "eager"])
@pytest.mark.parametrize(
    ("kernels", "kind", "counts"),
    [
        ([NCCL] * 97 + [NORM] * 97, "nccl", (0, 97, 0)),
        ([CUSTOM] * 97 + [NORM] * 97, "custom", (0, 0, 97)),
        ([LEGACY] * 5 + [GEMM], "custom", (0, 0, 5)),
        ([FUSED] * 95 + [CUSTOM] * 2 + [NORM] * 2, "fused", (95, 0, 2)),
        ([GEMM] * 9, "none", (0, 0, 0)),
    ],
)
def test_each_kind_is_counted_in_one_forward(graph, kernels, kind, counts):
    events = [e for n in range(3) for e in forward("DECODE", n, kernels, graph)]
    found = all_reduces(events, "DECODE")
    assert (found.kind, found.kernels) == (kind, len(kernels))
    assert (found.fused, found.nccl, found.custom) == counts
    assert found.graph_share == float(graph)


def test_the_drafters_kernels_are_not_the_targets():
    events = forward("TARGET_VERIFY", 0, [CUSTOM] * 97)
    events += forward("DECODE", 1, [CUSTOM] * 3, graph=False)  # a draft step
    assert all_reduces(events, "TARGET_VERIFY").custom == 97


def test_a_forward_that_the_profiler_cut_does_not_count():
    whole, cut = forward("VERIFY", 0, [CUSTOM] * 97), forward("VERIFY", 1, [CUSTOM] * 97)
    found = all_reduces(whole + cut[:40], "VERIFY")
    assert (found.forwards, found.custom) == (1, 97)


def test_forwards_of_fewer_requests_than_are_measured_do_not_count():
    events = [e for n in range(4) for e in forward("DECODE", n, [CUSTOM] * 9, requests=n + 1)]
    events += [e for n in (4, 5) for e in forward("DECODE", n, [NCCL] * 9, requests=16)]
    found = all_reduces(events, "DECODE")
    assert (found.requests, found.forwards, found.kind) == (16, 2, "nccl")


def test_a_trace_without_the_forward_is_refused():
    with pytest.raises(ValueError, match=r"no forward named step\[VERIFY …\] is in the trace"):
        all_reduces(forward("DECODE", 0, [CUSTOM]), "VERIFY")


def test_the_time_of_a_forward_is_broken_down():
    events = forward("DECODE", 0, [CUSTOM, GEMM, CUSTOM, GEMM])
    slow = next(e for e in events if e["cat"] == "kernel")
    slow["dur"] = 4  # waits one microsecond for a late rank
    found = all_reduces(events, "DECODE").breakdown
    assert found.compute == pytest.approx(0.006)
    assert (found.wire, found.wait) == pytest.approx((0.006, 0.001))
    assert found.launch == pytest.approx(0.002)


def test_a_trace_is_read_once_it_is_whole(tmp_path):
    packed = gzip.compress(json.dumps({"traceEvents": [{"ph": "M"}]}).encode())
    path = tmp_path / "17-TP-0.trace.json.gz"
    path.write_bytes(packed[:-9])
    timer = threading.Timer(0.2, path.write_bytes, [packed])
    timer.start()
    assert wait_for_trace(tmp_path, 5) == [{"ph": "M"}]
    timer.join()


def test_a_trace_that_never_comes_is_an_error(tmp_path):
    with pytest.raises(TimeoutError, match="the profiler wrote no trace"):
        wait_for_trace(tmp_path, 0.1)
