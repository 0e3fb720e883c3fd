"""A cell at work on SGLang: its server up, warmed, asked, proven and stopped."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cache import cache_root
from pipeline.engine.base import Prompt, Response
from pipeline.engine.sglang.arguments import server_arguments
from pipeline.engine.sglang.environment import install_plugin, server_environment
from pipeline.engine.sglang.evidence import Evidence
from pipeline.engine.sglang.gpus import wait_for_room
from pipeline.engine.sglang.installed import check_version, parse
from pipeline.engine.sglang.metrics import Answer, device_seconds, margins, response
from pipeline.engine.sglang.names import names
from pipeline.engine.sglang.records import Records, read_records
from pipeline.engine.sglang.server import Server, TimeOuts
from pipeline.engine.sglang.trace import AllReduces, all_reduces, wait_for_trace
from pipeline.quiet import OtherProcesses

if TYPE_CHECKING:
    from pipeline.cell import Cell
    from pipeline.engine.sglang.engine import SglangEngine
    from verify.base import Proof

PROBE_IDS = (1, 2, 3)  # any vocabulary has these
TRACED_STEPS = 8
TRACE_TIMEOUT_S = 120.0


class SglangSession:
    """One server and what it did so far.

    Attributes:
        server: The running server.
    """

    def __init__(self, engine: SglangEngine, cell: Cell) -> None:
        """Launch the server.

        Raises:
            ValueError: SGLang is missing, of an unsupported version, or refuses the arguments.
            ServerFault: The server did not become ready; nothing of it is left.
        """
        self._engine, self._cell = engine, cell
        self._arguments = server_arguments(cell, engine, cache_root())
        self._version = self._checked_version()
        self._names = names(self._version)
        self._stop_ids = sorted(cell.target.tokenizer(cache_root()).stop_ids)
        self._margins: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {}
        self._flush = 0
        self._ids = itertools.count()
        self._folder = Path(tempfile.mkdtemp(prefix="specroi-sglang-"))
        with contextlib.ExitStack() as undo:
            undo.callback(self._remove_folder)
            self.server = self._launch()
            undo.callback(self.server.stop)
            info = self.server.client.get("/server_info")
            self._evidence = Evidence(cell, self._arguments, info)
            undo.pop_all()

    def warm_up(self, prompts: list[Prompt]) -> None:
        """Run every kind of step once, uncounted; trace the all-reduces; note plain margins."""
        if len(prompts) < self._cell.parallelism.batch:
            raise ValueError(
                f"parallelism.batch={self._cell.parallelism.batch}: the workload has"
                f" {len(prompts)} prompts, and a closed loop needs at least as many"
            )
        if not self.server.log.plugin_active:
            raise RuntimeError("the plugin did not announce itself in the server's log")
        shortest = sorted(prompts, key=lambda prompt: len(prompt.tokens))
        self._ask_all(shortest[: self._cell.parallelism.batch])
        self._collect()
        if self._cell.parallelism.tp > 1:
            self._evidence.trace = self._trace(shortest[0])
        if self._cell.is_baseline and self._cell.sampling.temperature == 0:
            self._note_margins(prompts)
        self._collect()
        self._evidence.begin(device_seconds(self.server.client.metrics()))

    def generate(self, prompt: Prompt, repetition: int) -> Response:
        """Answer one prompt."""
        return self.answer([prompt], repetition)[0]

    def answer(self, prompts: Sequence[Prompt], repetition: int) -> list[Response]:
        """Answer prompts in a closed loop of `parallelism.batch` requests in flight.

        Alone in flight, each request begins with nothing learnt from an earlier one; with several,
        each repetition does.
        """
        size = len(prompts) if self._cell.parallelism.batch > 1 else 1
        chunks = [prompts[i : i + size] for i in range(0, len(prompts), size)]
        return [response for chunk in chunks for response in self._measured(chunk)]

    def proof(self) -> Proof:
        """What ran since warm-up."""
        seconds = device_seconds(self.server.client.metrics())
        return self._evidence.proof(seconds, self.server.log.fusion_failure)

    def settings(self) -> dict[str, str]:
        """What the server resolved, and how to serve the same."""
        return self._evidence.settings() | {
            "sglang": self._version,
            "seed": str(self._cell.sampling.seed),
            "deploy": self._arguments.deploy(),
            "server_command": " ".join(self.server.command),
        }

    def close(self) -> None:
        """Stop the server; its GPUs' memory is back when this returns."""
        try:
            self.server.stop()
        finally:
            self._remove_folder()

    def _launch(self) -> Server:
        """Start the server with our plugin beside it."""
        engine = self._engine
        wait_for_room(self._arguments.tp, engine.mem_fraction, engine.fence_timeout_s)
        install_plugin(self._folder)
        environment = server_environment(
            self._cell, self._arguments.mode, self._version, self._folder
        )
        inherited = os.environ.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(self._folder), inherited)))
        return Server(
            command=lambda port: engine.command(self._arguments, port),
            environment=environment,
            served_name=self._arguments.served_name,
            folder=self._folder,
            time_outs=TimeOuts(
                start=engine.start_timeout_s,
                request=engine.request_timeout_s,
                hang=engine.hang_timeout_s,
                stop=engine.stop_timeout_s,
                fence=engine.fence_timeout_s,
            ),
            probe_ids=PROBE_IDS,
        )

    def _checked_version(self) -> str:
        """Let the installed SGLang read the arguments; return the version whose names are used."""
        engine = self._engine
        parsed = parse(engine.python, self._arguments.words(port=1))
        installed = parsed.version
        if not installed:
            raise ValueError(
                "engine=sglang: SGLang is not installed here; pip install 'specroi[sglang]', or"
                " name an interpreter that has it in engine.python"
            )
        if engine.version == "auto":
            check_version(installed, parsed.options)
        if parsed.options and parsed.refusal:
            raise ValueError(f"SGLang {installed} refuses its arguments: {parsed.refusal}")
        return installed if engine.version == "auto" else engine.version

    def _measured(self, prompts: Sequence[Prompt]) -> list[Response]:
        """Answer prompts and pair each reply with its steps."""
        answers = self._ask_all(prompts)
        records = self._collect()
        self._evidence.add(answers, records)
        num = self._cell.drafter.num_draft_tokens
        depth = int(dict(self._arguments.drafter).get("speculative-num-steps", num))
        return [response(a, records, num, depth, self._margins_of(a)) for a in answers]

    def _ask_all(self, prompts: Sequence[Prompt]) -> list[Answer]:
        """Ask with as many requests in flight as the cell has; the next begins when one ends."""
        with ThreadPoolExecutor(self._cell.parallelism.batch) as pool:
            return list(pool.map(self._ask, prompts))

    def _ask(self, prompt: Prompt, **more: Any) -> Answer:
        """Send one prompt and wait for its whole reply."""
        rid = f"specroi-{next(self._ids)}-{prompt.id}"
        others, began = OtherProcesses(self.server.family), time.perf_counter()
        reply = self.server.client.generate(
            {"rid": rid, "input_ids": list(prompt.tokens), "sampling_params": self._sampling()}
            | more
        )
        wall_ms = (time.perf_counter() - began) * 1e3
        return Answer(prompt, rid, reply, wall_ms, others.share())

    def _sampling(self) -> dict[str, Any]:
        """Return SGLang's sampling parameters; the seed is the server's."""
        sampling = self._cell.sampling
        return {
            "max_new_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "stop_token_ids": self._stop_ids,
        }

    def _collect(self) -> Records:
        """Flush, which makes the plugin write what happened since the last time."""
        self.server.client.flush()
        records = read_records(self._folder, self._flush)
        self._flush = records.flush
        return records

    def _trace(self, prompt: Prompt) -> AllReduces:
        """Profile a few steps of a long answer and count the all-reduces in them."""
        folder = self._folder / "trace"
        self.server.client.post(
            "/start_profile",
            {
                "output_dir": str(folder),
                "num_steps": TRACED_STEPS,
                "activities": ["CPU", "GPU"],
                "with_stack": False,
            },
        )
        long = 2 * TRACED_STEPS * (self._cell.drafter.num_draft_tokens + 1)
        sampling = {"max_new_tokens": long, "temperature": 0.0, "ignore_eos": True}
        self._ask(prompt, sampling_params=sampling)
        stage = "DECODE" if self._cell.is_baseline else self._names.verify_span
        return all_reduces(wait_for_trace(folder, TRACE_TIMEOUT_S), stage)

    def _note_margins(self, prompts: Sequence[Prompt]) -> None:
        """Answer every prompt once with log-probabilities, untimed."""
        for prompt in prompts:
            reply = self._ask(prompt, return_logprob=True, top_logprobs_num=2).reply
            self._margins[prompt.id] = (tuple(reply["output_ids"]), margins(reply))
            self.server.client.flush()
            self._flush += 1

    def _margins_of(self, answer: Answer) -> tuple[float, ...]:
        """Return the noted margins, if the answer is the one that they belong to."""
        tokens, found = self._margins.get(answer.prompt.id, ((), ()))
        return found if tokens == tuple(answer.reply["output_ids"]) else ()

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
