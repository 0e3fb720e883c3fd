"""Small versions of the project for the gate: a folder with configs and cells that count.

What a version does is a file beside it, so that a version is a copy with another file.
"""

from __future__ import annotations

import json
from pathlib import Path

CONFIG = """\
drafter: none
verify: graph_captured
workload: {per_class: 3}
sampling: {max_new_tokens: 48}
engine: {threads: 0}
"""

BUILD = '''\
"""A version whose cells answer at once, as behaviour.json says."""

import json
import os
import random
import signal
import time
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path

HOW = json.loads((Path(__file__).parents[2] / "behaviour.json").read_text())
Prompt = make_dataclass("Prompt", ["id", "category"])
Record = make_dataclass("Record", HOW["record_fields"])
Response = make_dataclass("Response", HOW["response_fields"])
Proof = make_dataclass("Proof", ["capture", "num_verify_steps", "num_captured_steps", "linear",
                                 "attention", "problem"])


@dataclass
class Verify:
    def contradiction(self, proof):
        return HOW["contradiction"] or None


@dataclass
class Cell:
    drafter: str
    threads: int
    verify: Verify = field(default_factory=Verify)

    @property
    def engine(self):
        return self

    def start(self, cell):
        return Session(self)


@dataclass
class Plan:
    cell: Cell
    prompts: list
    record: Record


class Session:
    def __init__(self, cell):
        self.drafter, self.threads, self.steps = cell.drafter, cell.threads, 0

    def warm_up(self, prompts):
        if HOW["breaks"] == "start":
            raise RuntimeError("no weights at all")

    def settings(self):
        fixed = {"threads": str(self.threads)} if self.threads else {}
        return HOW["settings"] | fixed

    def generate(self, prompt, repetition):
        if prompt.id == "p5" and HOW["breaks"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if prompt.id == "p5" and HOW["breaks"] == "hang":
            Path(HOW["mark"]).touch()
            time.sleep(600)
        noise = random.Random(f"{HOW['noise']} {prompt.id} {repetition} {self.drafter}")
        plain = self.drafter == "none"
        committed = [1] * 16 if plain else list(HOW["committed"].get(prompt.id, [2] * 8))
        steps = len(committed)
        self.steps += steps
        tokens = HOW["tokens"].get(prompt.id, list(range(100, 117)))
        verify = [10.0 * HOW["slow"] * noise.gauss(1, HOW["sigma"]) for _ in committed]
        step = [v + 1.0 for v in verify]
        values = dict(
            prompt_id=prompt.id, category=prompt.category, num_prompt_tokens=9, tokens=tokens,
            margins=[2.5] * len(tokens), committed=committed,
            proposed=[0 if plain else 3] * steps, depth=[0 if plain else 3] * steps,
            verify_ms=verify, draft_ms=[0.5] * steps, step_ms=step, prefill_ms=20.0,
            decode_ms=sum(step), finish="length", others_cpu=-1.0,
        )
        return Response(**{f.name: values[f.name] for f in fields(Response)})

    def proof(self):
        captured = int(self.steps * HOW["graph_share"])
        return Proof("native_plan", self.steps, captured, "x", "x", "")


def build_cells(configs, jobs, on_impossible):
    if HOW["breaks"] == "build":
        raise ValueError("drafter=ngram: no such thing in this version")
    prompts = [Prompt(f"p{i}", "chat") for i in range(12)]
    return [Plan(Cell(c.drafter, c.engine.threads), prompts, _record(c.drafter)) for c in configs]


def _record(drafter):
    plain = drafter == "none"
    params = HOW["params"] | {"drafter": drafter}
    values = dict(
        cell_id=drafter, comparison="c", label=f"{drafter} × graph_captured", params=params,
        is_baseline=plain, width=1 if plain else HOW["width"], greedy=True,
    )
    return Record(**{f.name: values[f.name] for f in fields(Record)})
'''

RECORD = ["cell_id", "comparison", "label", "params", "is_baseline", "width", "greedy"]
RESPONSE = [
    "prompt_id", "category", "num_prompt_tokens", "tokens", "margins", "committed", "proposed",
    "depth", "verify_ms", "draft_ms", "step_ms", "prefill_ms", "decode_ms", "finish", "others_cpu",
]  # fmt: skip
BEHAVIOUR = {
    "record_fields": RECORD,
    "response_fields": RESPONSE,
    "params": {"target": "t", "engine": "e", "workload": "w", "prompts_digest": "p"}
    | {"verify": "graph_captured"},
    "settings": {"threads": "2", "dtype": "float32", "target_digest": "d", "torch": "2.13.0"},
    "width": 4,
    "breaks": "",
    "mark": "",
    "contradiction": "",
    "noise": "a",
    "slow": 1.0,
    "sigma": 0.01,
    "graph_share": 1.0,
    "committed": {},
    "tokens": {},
}


def make_version(folder: Path, **behaviour: object) -> Path:
    """Write a version; what is given differs from the one that all others are."""
    files = {"conf/config.yaml": CONFIG, "pipeline/sweep/build.py": BUILD}
    for name, text in (files | {"pipeline/machine/cache.py": ""}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for package in (path.parent, *path.parent.parents[: len(Path(name).parts) - 2]):
            (package / "__init__.py").touch()
    (folder / "behaviour.json").write_text(json.dumps(BEHAVIOUR | behaviour))
    return folder
