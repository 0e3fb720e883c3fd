"""SGLang's plain captured decode of an 8B-shaped Llama with dummy weights, for comparison.

`python -m experiments.verify_cost.sglang_decode OUT start CELL...` starts a server per cell, waits
until each has answered, and stops all of them with SIGSTOP, so that they use no CPU; `... measure`
wakes one after the other; `... end` ends them. SGLang 0.5.17 must be importable. Cells: `tp1`,
`tp2_custom`, `tp2_nccl`. Time per token is the slope between a short and a long answer, so prefill
and HTTP cancel out.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

SHAPE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
COMMON = (
    "--load-format dummy --skip-tokenizer-init --grammar-backend none --attention-backend triton"
    " --mem-fraction-static 0.9 --max-total-tokens 8192 --max-running-requests 2"
    " --cuda-graph-max-bs-decode 1 --disable-prefill-cuda-graph --context-length 4096"
    " --watchdog-timeout 100000 --host 127.0.0.1 --enforce-disable-flashinfer-allreduce-fusion"
)
CELLS = {
    "tp1": "--tp-size 1",
    "tp2_custom": "--tp-size 2",
    "tp2_nccl": "--tp-size 2 --disable-custom-all-reduce",
}
ENVIRONMENT = {
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0",
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
}
PROMPT_TOKENS, SHORT, LONG, REPEATS = 448, 32, 160, 5
READY_S = 280


def port(cell: str) -> int:
    """Return the cell's port."""
    return 31000 + 20 * list(CELLS).index(cell)


def start(folder: Path, cells: list[str]) -> None:
    """Start servers and leave them stopped once they have answered."""
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(SHAPE))
    processes = {}
    for cell in cells:
        command = [sys.executable, "-m", "sglang.launch_server", "--model-path", str(model)]
        command += (
            f"{COMMON} {CELLS[cell]} --port {port(cell)} --nccl-port {port(cell) + 1}".split()
        )
        log = (folder / f"{cell}.log").open("w")
        processes[cell] = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        )
    (folder / "groups.json").write_text(json.dumps({c: p.pid for c, p in processes.items()}))
    began, waiting = time.monotonic(), set(cells)
    while waiting and time.monotonic() - began < READY_S:
        for cell in sorted(waiting):
            if answers(cell):
                os.killpg(processes[cell].pid, signal.SIGSTOP)
                waiting.remove(cell)
                print(f"{cell} ready after {time.monotonic() - began:.0f} s", flush=True)
        time.sleep(1)
    if waiting:
        print(f"not ready: {sorted(waiting)}", flush=True)


def answers(cell: str) -> bool:
    """Whether a real answer comes back."""
    try:
        return generate(cell, 4, 8) > 0
    except OSError:
        return False


def generate(cell: str, prompt: int, new: int, seed: int = 0) -> float:
    """Return the seconds of one answer."""
    tokens = [(7919 * (i + 1) + 104729 * seed) % 120000 + 100 for i in range(prompt)]
    body = {
        "input_ids": tokens,
        "sampling_params": {"temperature": 0, "max_new_tokens": new, "ignore_eos": True},
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port(cell)}/generate",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
    return time.perf_counter() - began


def measure(folder: Path) -> None:
    """Wake each server in turn and time its decode."""
    found = {}
    for cell, group in json.loads((folder / "groups.json").read_text()).items():
        os.killpg(group, signal.SIGCONT)
        try:
            generate(cell, PROMPT_TOKENS, LONG, 99)
            slopes = []
            for seed in range(REPEATS):
                short = generate(cell, PROMPT_TOKENS, SHORT, 2 * seed)
                long = generate(cell, PROMPT_TOKENS, LONG, 2 * seed + 1)
                slopes.append((long - short) / (LONG - SHORT) * 1e3)
            found[cell] = {"ms_per_token": statistics.median(slopes), "all": slopes}
            print(cell, found[cell], flush=True)
        except OSError as error:
            print(cell, "failed:", error, flush=True)
        os.killpg(group, signal.SIGSTOP)
        log = (folder / f"{cell}.log").read_text(errors="replace").splitlines()
        proofs = [line for line in log if "cuda graph" in line.lower() or "All Reduce" in line]
        print("\n".join(line[-200:] for line in proofs[-4:]), flush=True)
    (folder / "gpu_sglang.json").write_text(json.dumps(found, indent=1))


def end(folder: Path) -> None:
    """End the servers that `start` started."""
    for group in json.loads((folder / "groups.json").read_text()).values():
        os.killpg(group, signal.SIGCONT)
        os.killpg(group, signal.SIGKILL)


def main(out: str, action: str, *cells: str) -> None:
    """Do one action."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    if action == "start":
        start(folder, list(cells) or list(CELLS))
    elif action == "measure":
        measure(folder)
    else:
        end(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
