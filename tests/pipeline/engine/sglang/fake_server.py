"""Stands where an interpreter with SGLang stands: answers its probes and plays its server.

Replies are transcribed from the sources of SGLang 0.5.17 and 0.5.23, to be replaced by recordings:
`python -m experiments.sglang_grid.record_answers` records real ones on a GPU box. `FAKE_FAULT`
names what breaks.
"""

import gzip
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

FAULT = os.environ.get("FAKE_FAULT", "")
VERSION = os.environ.get("FAKE_VERSION", "0.5.17")
STEP_S = 0.002
ACCEPTED = (0, 1, 3, 2)  # correct drafts, step by step, cut to what is drafted
LOCK = threading.Lock()


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def options() -> list[str]:
    """What the parser of the pretended version knows: our names, and what the fault takes away."""
    known = json.loads(os.environ["FAKE_FLAGS"])
    return sorted(f"--{flag}" for flag in known if flag != os.environ.get("FAKE_LACKS"))


def read(arguments: list[str]) -> dict[str, str]:
    """Parse as argparse would, well enough for what we pass."""
    out, name = {}, ""
    for word in arguments:
        if word.startswith("--"):
            name = word[2:]
            out[name] = ""
        else:
            out[name] = f"{out[name]} {word}".strip()
    return out


class State:
    """What the pretended scheduler did since the last flush."""

    scheduler: subprocess.Popen
    folder = Path(os.environ.get("SPECROI_SGLANG_FOLDER", ""))

    def __init__(self, given: dict[str, str]) -> None:
        self.given = given
        self.width = int(given.get("speculative-num-draft-tokens", 1))
        decode_graph = given["cuda-graph-backend-decode"] == "full"
        eager = os.environ.get("SPECROI_SGLANG_EAGER_VERIFY") == "1"
        self.mode = "target_verify" if self.width > 1 else "decode"
        self.graph = decode_graph and not (eager and self.width > 1)
        if FAULT == "falls_out_of_the_graph":
            self.graph = False
        self.flushes, self.seconds, self.steps, self.first = 0, 0.0, [], {}

    def generate(self, body: dict) -> dict:
        """Answer as `/generate` does; each step takes `STEP_S` of a clock of its own.

        A step sleeps that long too, so that no less passes for who asked; how much more, which is
        the machine's business, no figure shows.
        """
        limit = body["sampling_params"]["max_new_tokens"]
        tokens, correct = [(7 * sum(body["input_ids"]) + i * i) % 97 for i in range(limit)], []
        at_s = self.first[body.get("rid", "probe")] = time.perf_counter()
        done = 1
        while done < limit:
            time.sleep(STEP_S if self.scheduler.poll() is None else 600)
            accepted = min(ACCEPTED[len(correct) % len(ACCEPTED)], self.width - 1)
            correct.append(accepted)
            done += accepted + 1
            at_s += STEP_S
            self.step(body.get("rid", "probe"), accepted + 1, at_s)
        meta = {
            "id": body.get("rid"),
            "finish_reason": {"type": "length", "length": limit},
            "prompt_tokens": len(body["input_ids"]),
            "weight_version": "default",
            "num_retractions": 1 if FAULT == "retracts" else 0,
            "reasoning_tokens": 0,
            "completion_tokens": limit,
            "cached_tokens": 3 if FAULT == "caches" else 0,
            "e2e_latency": STEP_S * len(correct),
        }
        if self.width > 1:
            meta |= {
                "spec_verify_ct": len(correct) + (FAULT == "miscounts"),
                "spec_num_correct_drafts": sum(correct),
                "spec_num_proposed_drafts": len(correct) * (self.width - 1),
                "spec_accept_rate": sum(correct) / len(correct) / (self.width - 1),
                "spec_accept_length": limit / len(correct),
                "spec_correct_drafts_histogram": [
                    correct.count(i) for i in range(max(correct) + 1)
                ],
            }
        if body.get("return_logprob"):
            meta["output_top_logprobs"] = [[[-0.1, t, None], [-1.6, t + 1, None]] for t in tokens]
        return {"output_ids": tokens if FAULT != "completes_nothing" else [], "meta_info": meta}

    def step(self, rid: str, committed: int, at_s: float) -> None:
        """Note a step that ended at `at_s` as our plugin would."""
        with LOCK:
            self.seconds += 0.6 * STEP_S * (2 if FAULT == "timers_disagree" else 1)
            self.steps.append(
                {
                    "mode": self.mode,
                    "batch": 1,
                    "graph": self.graph,
                    "verify_ms": 600 * STEP_S,
                    "draft_ms": 100 * STEP_S
                    if self.width > 1 and FAULT != "hides_drafter"
                    else 0.0,
                    "at_s": at_s,
                    "committed": {rid: committed},
                }
            )

    def flush(self) -> None:
        """Write the steps, as the plugin does at `/flush_cache`."""
        self.flushes += 1
        records = {"flush": self.flushes, "pid": os.getpid(), "lost": 0}
        records |= {"first_s": self.first, "steps": self.steps}
        if FAULT != "no_plugin":
            (self.folder / "steps.json").write_text(json.dumps(records))
        self.steps, self.first = [], {}

    def info(self) -> dict:
        """Answer as `/server_info` does, in part."""
        return {
            "model_path": self.given["model-path"],
            "version": VERSION,
            "dtype": "auto",
            "quantization": None,
            "attention_backend": self.given["attention-backend"],
            "page_size": int(self.given["page-size"]),
            "internal_states": [{"avg_spec_accept_length": None, "last_gen_throughput": 0.0}],
        }

    def metrics(self) -> str:
        """Answer as `/metrics` does, in part."""
        labels = f'model_name="m",tp_rank="0",category="{self.mode}"'
        return (
            "# TYPE sglang:forward_execution_seconds_total counter\n"
            f"sglang:forward_execution_seconds_total{{{labels}}} {self.seconds}\n"
        )

    def profile(self, body: dict) -> None:
        """Write a trace: a forward while each request arrives, three of all; one launch each."""
        stage = {"decode": "DECODE", "target_verify": "TARGET_VERIFY"}[self.mode]
        if VERSION == "0.5.23" and self.mode == "target_verify":
            stage = "VERIFY"
        fused = 95 if "flashinfer-allreduce-fusion-backend" in self.given else 0
        fused = {"does_not_fuse": 0, "fuses_some": fused // 2}.get(FAULT, fused)
        plain = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
        if "disable-custom-all-reduce" not in self.given:
            plain = "void all_reduce_kernel<AllReducePushImpl<__nv_bfloat16, 2u, true> >"
        names = ["trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<x>"] * fused
        names += [plain] * (97 - fused) + ["gemm"] * 100
        events = []
        most = int(self.given["max-running-requests"])
        for i, requests in enumerate([*range(1, most), most, most, most]):
            at, thread = 1000.0 * i, {"pid": 1, "tid": 1, "ph": "X"}
            name = f"step[{stage} bs={requests}]"
            span = {"cat": "user_annotation", "name": name, "ts": at, "dur": 500}
            graph = self.graph and FAULT != "is_traced_eager"
            name = "cudaGraphLaunch" if graph else "cudaLaunchKernel"
            launch = {"cat": "cuda_runtime", "name": name, "ts": at + 9, "dur": 5}
            events += [span | thread, launch | thread | {"args": {"correlation": i}}]
            events += [
                {
                    "ph": "X",
                    "cat": "kernel",
                    "name": n,
                    "ts": at + 20 + 3 * k,
                    "dur": 2,
                    "args": {"correlation": i},
                }
                for k, n in enumerate(names)
            ]
        folder = Path(body["output_dir"])
        folder.mkdir(parents=True, exist_ok=True)
        with gzip.open(folder / "1700000000-TP-0.trace.json.gz", "wt") as file:
            json.dump({"traceEvents": events}, file)


class Handler(BaseHTTPRequestHandler):
    """Routes as SGLang's."""

    state: State

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self.reply("", 503 if FAULT == "never_ready" else 200)
        elif self.path == "/v1/models":
            name = (
                "someone-else" if FAULT == "wrong_model" else self.state.given["served-model-name"]
            )
            self.reply(json.dumps({"object": "list", "data": [{"id": name, "object": "model"}]}))
        elif self.path == "/server_info":
            self.reply(json.dumps(self.state.info()))
        elif self.path == "/metrics":
            self.reply(self.state.metrics())
        else:
            self.reply("not found", 404)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or "{}")
        if self.path == "/generate":
            self.probed() if body.get("rid") is None else self.measured()
            if FAULT == "refuses_to_complete":
                self.reply("no model is loaded yet", 503)
            else:
                self.reply(json.dumps(self.state.generate(body)))
        elif self.path == "/flush_cache":
            self.state.flush()
            self.reply("Cache flushed.\n")
        elif self.path == "/start_profile":
            self.state.profile(body)
            self.reply("Start profiling.\n")
        else:
            self.reply("not found", 404)

    def probed(self) -> None:
        """Break the request that shows the server ready."""
        if FAULT == "completes_late":
            time.sleep(1)

    def measured(self) -> None:
        """Break a request that counts."""
        speculates = FAULT == "speculation_crashes" and self.state.width > 1
        if FAULT == "crashes_in_a_request" or speculates:
            say("torch.OutOfMemoryError: CUDA out of memory.")
            os._exit(3)
        if FAULT == "hangs":
            os.kill(os.getpid(), signal.SIGSTOP)
        if FAULT == "never_answers":
            time.sleep(600)

    def reply(self, text: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


def announce() -> None:
    """Say what our plugin says, from the copy that lies on PYTHONPATH."""
    if FAULT != "no_plugin":
        found = importlib.util.find_spec("specroi_sglang_plugin")
        assert found is not None, "the plugin is not on PYTHONPATH"
        say("[2026-01-01 00:00:00] specroi plugin active: decoded, forward")


def parse(arguments: list[str]) -> None:
    """Refuse what argparse would."""
    if unknown := [w for w in arguments if w.startswith("--") and w not in options()]:
        say(f"sglang serve: error: unrecognized arguments: {' '.join(unknown)}")
        sys.exit(2)


def load(given: dict[str, str]) -> None:
    """Break a start."""
    for name in ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS"):
        assert name in os.environ, name
    say("Load weight begin. avail mem=100 GB")
    if log := os.environ.get("FAKE_LOG"):
        say(Path(log).read_text())
        sys.exit(1)
    if FAULT == "dies_at_start":
        say("ValueError: no kernel image is available")
        sys.exit(1)
    if FAULT == "port_taken":
        count = Path(os.environ["FAKE_COUNT"])
        count.write_text(count.read_text() + "x" if count.exists() else "x")
        if len(count.read_text()) < 3:
            say("ERROR: [Errno 98] error while attempting to bind on address")
            sys.exit(1)
    config = json.loads((Path(given["model-path"]) / "config.json").read_text())
    if FAULT == "runs_out_of_memory" or config["num_hidden_layers"] > 1000:
        say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB.")
        os._exit(-9)


def serve(arguments: list[str]) -> None:
    """Play `sglang.launch_server`."""
    given = read(arguments)
    parse(arguments)
    load(given)
    sleeper = ["sglang::scheduler_TP0", "-c", "import time; time.sleep(600)"]
    State.scheduler = subprocess.Popen(sleeper, executable=sys.executable)  # in the same group
    if FAULT == "shares_memory":
        shared = SharedMemory(create=True, size=1)
        (State.folder / "shared").write_text(shared.name)
    if FAULT == "ignores_sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    announce()
    Handler.state = State(given)
    ThreadingHTTPServer(("127.0.0.1", int(given["port"])), Handler).serve_forever()


def main(arguments: list[str]) -> None:
    """Serve `-c CODE …` (the probes) and `-m sglang.launch_server …`."""
    if arguments[0] == "-c" and "ServerArgs" not in arguments[1]:
        say(VERSION)
    elif arguments[0] == "-c":
        if FAULT == "notes_its_parser":
            Path(os.environ["FAKE_COUNT"]).touch()
        say(json.dumps([{"names": [name]} for name in options()]))
    else:
        serve(arguments[2:])


if __name__ == "__main__":
    main(sys.argv[1:])
