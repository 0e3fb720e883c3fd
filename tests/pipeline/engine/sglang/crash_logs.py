# ruff: noqa: E501  (lines of logs are as long as they are)
"""Ends of servers: what each wrote, in the shape of SGLang 0.5.17 and 0.5.23, and why it ended.

The texts are our own; paths, sizes and models are made up.
"""

NOW = "2026-03-04 05:06:07"
WARNED = """\
/opt/sg/launch_server.py:51: UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.
  warnings.warn(
[2026-03-04 05:06:01] WARNING server_args.py:1211: attention backend fa3 needs Hopper; error-prone elsewhere
[2026-03-04 05:06:02] server_args=ServerArgs(model_path='/m', error_log=None, watchdog_timeout=300)
"""
ECHO = """\
[2026-03-04 05:06:09] Received sigquit from a child process. It usually means the child failed.
[2026-03-04 05:06:09] kill_process_tree called: parent_pid=77, include_parent=True, pid=77
"""


def parent(rank=0, status=1):
    """Return what the launching process says when it notices the death."""
    return f"""\
Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/opt/sg/launch_server.py", line 68, in <module>
    run_server(server_args)
  File "/opt/sg/srt/entrypoints/engine.py", line 1702, in _wait_for_scheduler_ready
    raise _scheduler_died_error(i, scheduler_procs[i])
RuntimeError: Rank {rank} scheduler died during initialization (exit code: {status}). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.
"""


def scheduler(raised, rank="", frames=1):
    """Return a scheduler's own report of what it raised."""
    body = '  File "/opt/sg/srt/managers/scheduler.py", line 4930, in run_scheduler_process\n    go()\n'
    return (
        f"[{NOW}{rank}] Scheduler hit an exception: Traceback (most recent call last):\n"
        f"{body * frames}{raised}\n\n"
    )


def chained(*raised, link="During handling of the above exception, another exception occurred:"):
    """Return a traceback's later errors, each raised while the one before was handled."""
    frame = 'Traceback (most recent call last):\n  File "/opt/sg/x.py", line 1, in f\n    g()\n'
    return f"\n\n{link}\n\n{frame}".join(raised)


MODULE = "ModuleNotFoundError: No module named 'deep_gemm'"
KERNEL = (
    "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device"
)
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. GPU 0 has a total capacity of 139.80 GiB of which 412.00 MiB is free."
NCCL = "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
GONE = "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer"
FLASH = "CUDA error (/build/hopper/flash_fwd_launch_template.h:180): device kernel image is invalid"
DIRECT = "The above exception was the direct cause of the following exception:"
SHARDS = "Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]\r"
BAR = "\rCapturing batches (bs=1 avail_mem=9.11 GB):   0%|          | 0/8 [00:00<?, ?it/s]"
SPAWN = """\
Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.12/multiprocessing/spawn.py", line 122, in spawn_main
    exitcode = _main(fd, parent_sentinel)
  File "/opt/sg/srt/managers/scheduler.py", line 88, in <module>
    import sgl_kernel
"""

LOGS = {
    "a module is missing, 0.5.17": (
        WARNED + scheduler(MODULE, " TP0") + ECHO + parent(),
        MODULE,
    ),
    "a module is missing, 0.5.23": (
        WARNED + scheduler(MODULE, " DP0 TP0 EP0", frames=9) + parent() + ECHO,
        MODULE,
    ),
    "the GPU lacks a kernel": (WARNED + scheduler(KERNEL) + ECHO, KERNEL),
    "a kernel image is invalid and the process exits from C": (
        WARNED + FLASH + "\n" + parent(),
        FLASH,
    ),
    "another spelling of a runtime's error": (
        f"[{NOW}] Load weight end.\nCUDA error: an illegal instruction was encountered\n{parent(0, -6)}",
        "CUDA error: an illegal instruction was encountered",
    ),
    "memory, and what the capture made of it": (
        scheduler(
            chained(MEMORY, "Exception: Capture cuda graph failed: CUDA out of memory."), " TP0"
        )
        + "Possible solutions:\n1. set --mem-fraction-static to a smaller value\n"
        + ECHO,
        MEMORY,
    ),
    "the cache does not fit": (
        scheduler("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")
        + parent(),
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ),
    "NCCL": (scheduler(NCCL, " TP1") + scheduler(NCCL, " TP0") + parent(1), NCCL),
    "NCCL says more further down": (
        scheduler(
            "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:94, unhandled cuda error\n"
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
            "Cuda failure 999 'unknown error'"
        ),
        "unhandled cuda error Cuda failure 999 'unknown error'",
    ),
    "a sibling's lost connection is written first": (
        scheduler(GONE, " TP1") + scheduler(MEMORY, " TP0") + ECHO,
        MEMORY,
    ),
    "a sibling's closed pipe is written first": (
        scheduler(
            "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer", " TP1"
        )
        + scheduler(KERNEL, " TP0"),
        KERNEL,
    ),
    "ranks interleaved line by line": (
        f"[{NOW} TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        f"[{NOW} TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sg/a.py", line 3, in f\n  File "/opt/sg/a.py", line 3, in f\n    g()\n    g()\n'
        f"{MEMORY}\n{GONE}\n\n{ECHO}",
        MEMORY,
    ),
    "an assertion": (
        scheduler("AssertionError: 14 heads do not divide by 4"),
        "AssertionError: 14 heads do not divide by 4",
    ),
    "an assertion without a word": (
        f"[{NOW}] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/opt/sg/layers/linear.py", line 61, in divide\n'
        "    assert numerator % denominator == 0\n"
        "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^\nAssertionError\n\n" + ECHO,
        "AssertionError: assert numerator % denominator == 0",
    ),
    "C++ throws": (
        "terminate called after throwing an instance of 'c10::Error'\n"
        "  what():  CUDA error: device kernel image is invalid\n"
        "CUDA kernel errors might be asynchronously reported at some other API call.\n"
        "Exception raised from c10_cuda_check_implementation (most recent call first):\n"
        "Fatal Python error: Aborted\n\nThread 0x00007f1 (most recent call first):\n"
        '  File "/usr/lib/python3.11/threading.py", line 324 in wait\n' + parent(0, -6),
        "CUDA error: device kernel image is invalid",
    ),
    "C++ throws nothing that it could name": (
        "terminate called without an active exception\n" + parent(0, -6),
        "terminate called without an active exception",
    ),
    "Python's own last words": (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f4 (most recent call first):\n"
        '  File "/opt/sg/srt/distributed/pynccl_wrapper.py", line 351 in ncclCommInitRank\n'
        f"\nExtension modules: numpy._core._multiarray_umath, torch._C (total: 197)\n{parent(0, -11)}",
        "Fatal Python error: Segmentation fault",
    ),
    "a shell's word of a crash": (
        f"[{NOW}] Load weight begin.\nSegmentation fault (core dumped)\n" + parent(0, -11),
        "Segmentation fault (core dumped)",
    ),
    "killed for the machine's memory, in silence": (
        WARNED
        + f"[{NOW} TP0] Load weight begin. avail mem=139.21 GB\n"
        + SHARDS * 3
        + parent(0, -9),
        "the scheduler of rank 0 crashed with exit code -9: SIGKILL (the machine's memory ran out",
    ),
    "killed while it served": (
        f"[{NOW}] Subprocess scheduler_1 (pid=812) crashed with exit code -9. Triggering SIGQUIT for"
        f" cleanup...\n{ECHO}",
        "Subprocess scheduler_1 (pid=812) crashed with exit code -9: SIGKILL",
    ),
    "the kernel tells whom it killed": (
        "[ 912.3] Out of memory: Killed process 4242 (sglang::schedul) total-vm:98G\n"
        + parent(0, -9),
        "Out of memory: Killed process 4242 (sglang::schedul)",
    ),
    "nothing but the parent's word": (
        f"[{NOW}] Load weight begin. avail mem=139.21 GB\n" + parent(2, 1),
        "the scheduler of rank 2 ended with exit code 1 and said no reason; its last line:",
    ),
    "a child that dies in an import": (WARNED + SPAWN + MODULE + "\n" + parent(), MODULE),
    "an undefined symbol in an import": (
        SPAWN
        + "ImportError: /opt/sgl_kernel/common_ops.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEa\n"
        + parent(),
        "undefined symbol: _ZN3c104cuda9SetDeviceEa",
    ),
    "the loader finds no library": (
        "python3: error while loading shared libraries: libcuda.so.1: cannot open shared object file\n",
        "error while loading shared libraries: libcuda.so.1",
    ),
    "a named process and its traceback": (
        "Process sglang::detokenizer:\nTraceback (most recent call last):\n"
        '  File "/opt/sg/detokenizer.py", line 9, in run\n    x()\n'
        "OSError: [Errno 28] No space left on device\n" + ECHO,
        "OSError: [Errno 28] No space left on device",
    ),
    "a chain whose first link is the cause": (
        scheduler(
            chained(
                "ImportError: libnvrtc.so.13: cannot open shared object file",
                "RuntimeError: no backend for grouped gemm",
                link=DIRECT,
            )
        ),
        "ImportError: libnvrtc.so.13: cannot open shared object file (then RuntimeError: no backend",
    ),
    "a chain whose first link is a mere look-up": (
        'Traceback (most recent call last):\n  File "/opt/t.py", line 4, in f\n    m[k]\n'
        + chained(
            "KeyError: 'newarch'",
            "ValueError: model type `newarch` is not recognized by this Transformers",
        )
        + "\n",
        "ValueError: model type `newarch` is not recognized by this Transformers (after KeyError:",
    ),
    "the parent's broken pipe behind it": (
        scheduler(KERNEL)
        + 'Traceback (most recent call last):\n  File "/usr/lib/connection.py", line 399, in _recv\n'
        + chained(
            "    raise EOFError\nEOFError",
            "RuntimeError: Initialization failed. Please see the error messages above.",
        ),
        KERNEL,
    ),
    "an older parent's words": (
        f"[{NOW}] Rank 0 scheduler is dead. Please check if there are relevant logs.\n"
        f"{scheduler(MEMORY)}[{NOW}] Exit code: 1\n"
        'Traceback (most recent call last):\n  File "/usr/lib/connection.py", line 399, in _recv\n'
        "    raise EOFError\nEOFError\n",
        MEMORY,
    ),
    "siblings and event loops that are interrupted": (
        'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    x()\nKeyboardInterrupt\n'
        f"[{NOW}] Task exception was never retrieved\nfuture: <Task finished name='Task-3'>\n"
        'Traceback (most recent call last):\n  File "/b.py", line 1, in g\n    y()\n'
        "RuntimeError: Event loop is closed\n"
        'ERROR:    Traceback (most recent call last):\n  File "/c.py", line 5, in h\n    z()\n'
        "asyncio.exceptions.CancelledError\n\n" + scheduler(KERNEL) + ECHO,
        KERNEL,
    ),
    "warnings with tracebacks before it": (
        f"[{NOW} TP0] Failed to import flash_mla, falling back: Traceback (most recent call last):\n"
        f"  File \"/x.py\", line 1, in <module>\nModuleNotFoundError: No module named 'flash_mla'\n"
        f"[{NOW} TP0] Ignore import error when loading sglang.srt.models.odd: no module named odd\n"
        'Traceback (most recent call last):\n  File "/x.py", line 2, in <module>\n    import odd\n'
        "ImportError: odd is optional\n" + scheduler(MEMORY, " TP0") + ECHO,
        MEMORY,
    ),
    "a warning with a traceback and then an uncaught one": (
        f"[{NOW}] Could not read the tuned configuration, skipping\n"
        'Traceback (most recent call last):\n  File "/x.py", line 2, in f\n    open(p)\n'
        "FileNotFoundError: [Errno 2] No such file or directory: 'tuned.json'\n"
        f"[{NOW}] Load weight begin.\n"
        'Traceback (most recent call last):\n  File "/y.py", line 2, in f\n    load()\n'
        "safetensors_rust.SafetensorError: Error while deserializing header: InvalidHeaderLength\n",
        "safetensors_rust.SafetensorError: Error while deserializing header",
    ),
    "a compiler's word inside the message": (
        scheduler(
            "RuntimeError: Ninja build failed. Ninja output:\n"
            "[1/4] nvcc -gencode=arch=compute_120 -c norm.cu\n"
            "nvcc fatal   : Unsupported gpu architecture 'compute_120'\nninja: build stopped."
        ),
        "RuntimeError: Ninja build failed. Ninja output: nvcc fatal : Unsupported gpu architecture",
    ),
    "progress bars that are overwritten": (
        f"[{NOW} TP0] Capture decode CUDA graph begin.\n"
        + BAR * 40
        + scheduler(MEMORY, " TP0")
        + ECHO,
        MEMORY,
    ),
    "a bare traceback behind a progress bar": (
        SHARDS + BAR.strip("\r") + "Traceback (most recent call last):\n"
        '  File "/y.py", line 2, in f\n    load()\nRuntimeError: shape mismatch: 64 and 128\n',
        "RuntimeError: shape mismatch: 64 and 128",
    ),
    "colours": (
        f"\x1b[31m[{NOW} TP0] Scheduler hit an exception: Traceback (most recent call last):\x1b[0m\n"
        '  File \x1b[35m"/opt/sg/a.py"\x1b[0m, line \x1b[35m3\x1b[0m, in \x1b[35mf\x1b[0m\n'
        "\x1b[1;35mModuleNotFoundError\x1b[0m: \x1b[35mNo module named 'deep_gemm'\x1b[0m\n" + ECHO,
        MODULE,
    ),
    "torch marks each line with its rank": (
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/a.py", line 3, in f\n'
        "[rank1]:     g()\n[rank1]: ValueError: head size 96 is not supported\n" + parent(1),
        "ValueError: head size 96 is not supported",
    ),
    "torch's watchdog": (
        "[rank0]:[E304 05:06:07.123 ProcessGroupNCCL.cpp:2057] [PG ID 0 Rank 0] Process group watchdog"
        " thread terminated with exception: CUDA error: unspecified launch failure\n"
        + parent(0, -6),
        "terminated with exception: CUDA error: unspecified launch failure",
    ),
    "a kernel's assertion before Python's": (
        "../aten/src/ATen/native/cuda/Indexing.cu:1515: indexSelect: block: [3,0,0], thread: [0,0,0]"
        " Assertion `srcIndex < srcSelectDimSize` failed.\n"
        + scheduler("torch.AcceleratorError: CUDA error: device-side assert triggered"),
        "Assertion `srcIndex < srcSelectDimSize` failed.",
    ),
    "an error of the main process": (
        WARNED
        + 'Traceback (most recent call last):\n  File "/opt/sg/launch_server.py", line 60, in f\n'
        "    prepare_server_args(sys.argv[1:])\n"
        "ValueError: EAGLE3 needs a draft model that has a vocabulary map\n",
        "ValueError: EAGLE3 needs a draft model that has a vocabulary map",
    ),
    "the warm-up of the server fails": (
        f"[{NOW}] Initialization failed. warmup error: Traceback (most recent call last):\n"
        '  File "/opt/sg/http_server.py", line 9, in _wait_and_warmup\n    assert res.status_code == 200\n'
        "AssertionError: res=<Response [500]>, res.text='out of range'\n" + ECHO,
        "AssertionError: res=<Response [500]>, res.text='out of range'",
    ),
    "secrets in an address": (
        scheduler("OSError: cannot reach https://me:hunter2@hub.example/m: 401"),
        "OSError: cannot reach https://***@hub.example/m: 401",
    ),
    "no word at all": ("\n\n", "it said nothing"),
    "an error whose message begins on the next line": (
        SPAWN
        + "ImportError: \n[sgl_kernel] CRITICAL: Could not load any common_ops library!\n\n"
        + "Attempted locations:\n1. Architecture-specific pattern\n"
        + parent(),
        "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!",
    ),
    "an error whose message is a traceback": (
        scheduler(
            "tvm.error.InternalError: Traceback (most recent call last):\n  2: run()\n"
            '  File "/src/norm.cu", line 88\nInternalError: Check failed: hidden % 8 == 0'
        ),
        "InternalError: Check failed: hidden % 8 == 0",
    ),
    "a validator's error": (
        scheduler(
            "pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "rope_scaling\n  Value error, unknown rope type [type=value_error]"
        ),
        "1 validation error for ModelConfig Value error, unknown rope type",
    ),
    "a logged failure and the parent's broken pipe": (
        f"[{NOW} TP0] Failed to load the model: Traceback (most recent call last):\n"
        '  File "/x.py", line 1, in load\n    f()\nOSError: model.safetensors is truncated\n'
        'Traceback (most recent call last):\n  File "/usr/lib/connection.py", line 399, in _recv\n'
        "    raise EOFError\nEOFError\n",
        "OSError: model.safetensors is truncated",
    ),
    "an older parent that saw a kill": (
        f"[{NOW}] Load weight begin.\n[{NOW}] Rank 0 scheduler is dead. Please check if there are"
        f" relevant logs.\n[{NOW}] Exit code: -9\nTraceback (most recent call last):\n"
        '  File "/usr/lib/connection.py", line 399, in _recv\n    raise EOFError\nEOFError\n',
        "a scheduler crashed with exit code -9: SIGKILL",
    ),
    "a broken pipe alone": (
        f"[{NOW}] Load weight begin. avail mem=9 GB\nTraceback (most recent call last):\n"
        '  File "/usr/lib/connection.py", line 399, in _recv\n    raise EOFError\nEOFError\n',
        "it said no reason; its last line: Load weight begin.",
    ),
    "memory of a rank while others wait for it": (
        scheduler(MEMORY, " TP3")
        + scheduler("RuntimeError: [gloo/pair.cc:534] Connection reset by peer", " TP0") * 3
        + parent(3),
        MEMORY,
    ),
    "NCCL's timeout": (
        "[rank1]:[E304 05:06:07.123 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective"
        " operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE) ran for 600000 milliseconds\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        "  what():  [PG ID 0 Rank 1] Watchdog caught collective operation timeout: ALLREDUCE\n"
        + parent(1, -6),
        "[PG ID 0 Rank 1] Watchdog caught collective operation timeout: ALLREDUCE",
    ),
    "a logger that is interrupted by its signal": (
        scheduler(KERNEL) + "--- Logging error ---\nTraceback (most recent call last):\n"
        '  File "/usr/lib/logging/__init__.py", line 1113, in emit\n    stream.write(msg)\n'
        "RuntimeError: reentrant call inside <_io.BufferedWriter name='<stderr>'>\nCall stack:\n"
        '  File "/opt/sg/engine.py", line 343, in sigquit_handler\n    logger.error(\n'
        "Message: 'Received sigquit from a child process. It usually means the child failed.'\n"
        "Arguments: ()\n",
        KERNEL,
    ),
    "the same, before the scheduler's own words": (
        "--- Logging error ---\nTraceback (most recent call last):\n"
        '  File "/usr/lib/logging/__init__.py", line 1113, in emit\n    stream.write(msg)\n'
        "RuntimeError: reentrant call inside <_io.BufferedWriter name='<stderr>'>\n"
        + scheduler(MEMORY),
        MEMORY,
    ),
    "lines that two processes wrote into one": (
        f"[{NOW} TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        f'  File "/opt/sg/a.py", line 3, in f\n    g()\n{MEMORY}{ECHO}',
        MEMORY,
    ),
    "an interruption while an error is handled": (
        scheduler(chained(MEMORY, "KeyboardInterrupt")) + ECHO,
        MEMORY,
    ),
}
