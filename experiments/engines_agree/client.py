"""Our client against SGLang's own benchmark, on one running server.

    python -m experiments.engines_agree.client PORT TOKENIZER_FOLDER

Start the server with the `deploy` command of a cell and `--port PORT --disable-radix-cache`. Both
send the same number of random prompts of the same lengths, one after the other, and count output
tokens over wall time; the two may differ by 3 %. A server's own speed scatters by more than that
from round to round: over all rounds, tokens and seconds are added up.
`experiments.engines_agree.steady_server` is a server that does not scatter.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import harmonic_mean

from pipeline.engine.sglang.client import Client

PROMPTS, PROMPT_TOKENS, OUTPUT_TOKENS, ROUNDS = 8, 128, 256, 5
TOLERANCE = 0.03
VOCABULARY = 1000


def main(port: int, tokenizer: str) -> int:
    """Take turns, compare all tokens over all seconds, and return 1 if they differ too much."""
    ours, theirs = [], []
    for number in range(ROUNDS):
        ours.append(our_tok_s(port, number))
        theirs.append(their_tok_s(port, tokenizer, number))
        print(f"round {number}: ours {ours[-1]:.1f}, bench_serving {theirs[-1]:.1f} tok/s")
    ratio = harmonic_mean(ours) / harmonic_mean(theirs)  # each round has as many tokens
    scatter = max(max(each) / min(each) - 1 for each in (ours, theirs))
    print(f"ratio: {ratio:.3f} (may be {1 - TOLERANCE} to {1 + TOLERANCE})")
    print(f"rounds of the same client differ by up to {scatter:.1%}")
    return int(abs(ratio - 1) > TOLERANCE)


def our_tok_s(port: int, seed: int) -> float:
    """Send prompts through the engine's client, one after the other."""
    client = Client(port, lambda: None, request_timeout_s=600, hang_timeout_s=60)
    draw = random.Random(seed)
    sampling = {"max_new_tokens": OUTPUT_TOKENS, "temperature": 0.0, "ignore_eos": True}
    began, tokens = time.perf_counter(), 0
    for _ in range(PROMPTS):
        ids = [draw.randrange(3, VOCABULARY) for _ in range(PROMPT_TOKENS)]
        reply = client.generate({"input_ids": ids, "sampling_params": sampling})
        tokens += reply["meta_info"]["completion_tokens"]
    return tokens / (time.perf_counter() - began)


def their_tok_s(port: int, tokenizer: str, seed: int) -> float:
    """Let SGLang's benchmark send the same amount."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.jsonl"
        lengths = [f"--random-input-len={PROMPT_TOKENS}", f"--random-output-len={OUTPUT_TOKENS}"]
        command = [
            *(sys.executable, "-m", "sglang.bench_serving", "--backend=sglang"),
            *(f"--base-url=http://127.0.0.1:{port}", f"--tokenizer={tokenizer}"),
            *("--dataset-name=random-ids", "--random-range-ratio=1", *lengths),
            *(f"--num-prompts={PROMPTS}", "--max-concurrency=1", "--tokenize-prompt"),
            *("--warmup-requests=1", f"--seed={seed}", f"--output-file={out}", "--disable-stream"),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return float(json.loads(out.read_text().splitlines()[-1])["output_throughput"])


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), sys.argv[2]))
