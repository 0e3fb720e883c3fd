"""A real engine that counts: it answers at once, and breaks on request."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from drafters.none import NoDrafter
from pipeline.cell.cell import Cell, Parallelism, Sampling
from pipeline.cell.response import Response
from pipeline.sweep.build import PlannedCell
from pipeline.target.target import Target
from pipeline.workload.prompts import Prompt
from pipeline.workload.sources import Jsonl
from verify.base import Proof
from verify.extend import Extend

PROMPTS = tuple(Prompt(f"p{i}", "chat", (1, 2, 3)) for i in range(3))


@dataclass(frozen=True)
class TinyEngine:
    """Answers each prompt with `steps` steps of one token.

    Attributes:
        breaks: `raise`, `exit`, `kill`, `hang`, `start` or "": what happens in the
            second repetition (`start`: while starting).
        label: Keeps cells apart.
        gate: Folder; a repetition waits until it holds the file `go` when this is not "".
        step_ms: What a step is said to take.
        captures: Say that every step was replayed from a capture.
    """

    label: str = ""
    breaks: str = ""
    gate: str = ""
    step_ms: float = 2.0
    steps: int = 20
    captures: bool = False
    name: str = "tiny"

    def check(self, cell) -> None:
        """Run anything."""

    def start(self, cell):
        if self.breaks == "start":
            raise RuntimeError("no weights\nat all")
        return TinySession(self, cell)


class TinySession:
    def __init__(self, engine: TinyEngine, cell) -> None:
        self.engine = engine
        self.steps = 0
        # A server in a process group of its own, as a real engine starts one.
        self.server = subprocess.Popen(
            [sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True
        )
        sys.stdout.write(f"server {self.server.pid}\n")

    def warm_up(self, prompts: list[Prompt]) -> None:
        self.settings_seen = len(prompts)

    def settings(self) -> dict[str, str]:
        return {"pid": str(os.getpid()), "wait_policy": os.environ.get("OMP_WAIT_POLICY", "")}

    def generate(self, prompt: Prompt, repetition: int) -> Response:
        engine = self.engine
        if repetition == 1:
            _break(engine.breaks)
        if engine.gate and repetition >= 1:
            Path(engine.gate, f"{engine.label}-waits").touch()
            while not Path(engine.gate, "go").exists():
                time.sleep(0.02)
        self.steps += engine.steps
        times = (engine.step_ms,) * engine.steps
        return Response(
            prompt_id=prompt.id,
            category=prompt.category,
            num_prompt_tokens=len(prompt.tokens),
            tokens=tuple(range(engine.steps + 1)),
            margins=(),
            committed=(1,) * engine.steps,
            proposed=(0,) * engine.steps,
            depth=(0,) * engine.steps,
            verify_ms=times,
            draft_ms=(0.0,) * engine.steps,
            step_ms=times,
            prefill_ms=1.0,
            decode_ms=sum(times),
            finish="length",
            others_cpu=-1,
        )

    def proof(self) -> Proof:
        return Proof("none", self.steps, self.steps * self.engine.captures, "none", "none")

    def close(self) -> None:
        self.server.kill()
        self.server.wait()


def _break(how: str) -> None:
    if how == "raise":
        raise RuntimeError("the kernel is missing")
    if how == "exit":
        os._exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hang":
        time.sleep(600)


def plan(engine: TinyEngine, impossible: str = "") -> PlannedCell:
    """Return a cell of the engine; its drafter and verify backend are the real, plain ones."""
    cell = Cell(
        target=Target("tiny", "package:tiny/tiny.gguf"),
        drafter=NoDrafter(name=f"none-{engine.label}"),
        verify=Extend(),
        engine=engine,
        workload=Jsonl(__file__),
        sampling=Sampling(8),
        parallelism=Parallelism(),
        prompts_digest="tiny",
    )
    return PlannedCell(cell, PROMPTS, f"make {engine.label}", impossible)
